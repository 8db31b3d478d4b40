package webhook_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/examples/webhooks/internal/webhook"
)

// Every committed delivery is understood, and each malformed one is refused with a code of
// its own.
func TestParseTheCommittedDeliveries(t *testing.T) {
	all, err := webhook.Load("../../testdata")
	require.NoError(t, err)
	codes := map[string]string{}
	for _, d := range all {
		event, err := webhook.Parse(d.Event, d.ContentType, d.Body)
		if strings.HasPrefix(d.File, "deliveries/") {
			require.NoError(t, err, d.File)
			require.Equal(t, d.Event, event.Name)
			require.Contains(t, event.Repository, "/")
			continue
		}
		var reject *webhook.RejectError
		require.ErrorAs(t, err, &reject, d.File)
		codes[reject.Code] = d.File
	}
	require.Len(t, codes, 4)
	require.Contains(t, codes[webhook.CodeMalformedJSON], "truncated")
	require.Contains(t, codes[webhook.CodeWrongType], "wrong-type")
	require.Contains(t, codes[webhook.CodeMissingRepository], "without-repository")
	require.Contains(t, codes[webhook.CodeContentType], "form-encoded")
}
