package readmetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lines of docs/clients.md on ordering keys and follow-ups are run as printed, in order.
func TestPasteLinesForClients(t *testing.T) {
	address, _ := serve(t)
	calls := paste(t, texts(page(t, "docs/clients.md"), "paste"), address, installGrpcurl(t, texts(readme(t), "install")))
	var names []string
	for _, c := range calls {
		names = append(names, c.Method)
	}
	require.Equal(t, []string{"BatchEnqueue", "Claim", "Claim", "Complete", "Claim", "Complete", "Claim"}, names)

	first := calls[1].Answer
	require.Equal(t, 2, strings.Count(first, `"claimToken"`), "O3: one of each key")
	require.Less(t, strings.Index(first, "customer-7"), strings.Index(first, "customer-8"))
	require.Equal(t, "EMPTY_REASON_ORDERING_BLOCKED", calls[2].text(t, "emptyReason"))
	require.Contains(t, calls[4].Answer, `"payload": "cGF5"`, "O5: the second of customer-7")
	ids := calls[5].text(t, "followUpMessageIds")
	require.Len(t, strings.Fields(ids), 2)
	mail := calls[6].Answer
	require.Contains(t, mail, `"payload": "dGhhbmtz"`)
	require.Contains(t, strings.Fields(strings.Trim(ids, "[]"))[1], messageID(t, mail), "S10")
}

// messageID reads the first identifier of an answer.
func messageID(t *testing.T, answer string) string {
	t.Helper()
	_, after, found := strings.Cut(answer, `"messageId": "`)
	require.True(t, found, answer)
	id, _, _ := strings.Cut(after, `"`)
	return id
}
