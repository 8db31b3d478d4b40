package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// Downstream is the service that a worker calls for each delivery, as a real one would call
// a database or another service. It may be called twice for one delivery (QueueBox is
// at-least-once), so the delivery id goes along and the service can tell.
type Downstream struct {
	URL    string
	Client *http.Client
}

// Post hands over one delivery. An answer other than 204 is an error worth another attempt.
func (d Downstream) Post(ctx context.Context, id, event string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("downstream request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Delivery", id)
	request.Header.Set("X-GitHub-Event", event)
	response, err := d.Client.Do(request)
	if err != nil {
		return fmt.Errorf("downstream: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	// Read to its end so that the connection is used again.
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("downstream answer: %w", err)
	}
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("downstream answered %s", response.Status)
	}
	return nil
}
