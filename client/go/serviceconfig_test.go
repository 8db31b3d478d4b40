package queuebox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestServiceConfig_IsTheOneThatTheDocumentationPrints(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```json\n")
	require.True(t, found)
	printed, _, found := strings.Cut(rest, "\n```")
	require.True(t, found)
	require.JSONEq(t, serviceConfig, printed)
}

// TestServiceConfig_NamesEveryUnaryCall keeps a new call from going without a decision.
func TestServiceConfig_NamesEveryUnaryCall(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{
		queueboxv1.File_queuebox_v1_worker_service_proto, queueboxv1.File_queuebox_v1_producer_service_proto,
	} {
		service := file.Services().Get(0)
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if m.IsStreamingClient() {
				continue
			}
			require.Contains(t, serviceConfig, fmt.Sprintf(`{"service": %q, "method": %q}`, service.FullName(), m.Name()))
		}
	}
}
