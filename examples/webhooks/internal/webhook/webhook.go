// Package webhook is what the programs of the webhooks demo know about a delivery: how it
// lies on disk as its receiver kept it, and what a worker has to find in its body.
package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"os"
	"path/filepath"
)

// Names of the attributes that a message carries, which are the headers of the delivery.
const (
	AttributeEvent    = "x-github-event"
	AttributeDelivery = "x-github-delivery"
)

// Codes for DeadLetter: one for each way in which a body is useless. No later attempt can
// mend such a body, so the message is set aside at once.
const (
	CodeContentType       = "unsupported_content_type"
	CodeMalformedJSON     = "malformed_json"
	CodeWrongType         = "wrong_type"
	CodeMissingRepository = "missing_repository"
)

// Delivery is one webhook as its receiver kept it.
type Delivery struct {
	File        string `json:"file"`
	ID          string `json:"x-github-delivery"`
	Event       string `json:"x-github-event"`
	ContentType string `json:"content-type"`
	Body        []byte `json:"-"`
}

// Load reads the deliveries that headers.json of the directory lists, in its order.
func Load(dir string) ([]Delivery, error) {
	index, err := os.ReadFile(filepath.Join(dir, "headers.json"))
	if err != nil {
		return nil, fmt.Errorf("read the index of the deliveries: %w", err)
	}
	var all []Delivery
	if err := json.Unmarshal(index, &all); err != nil {
		return nil, fmt.Errorf("decode the index of the deliveries: %w", err)
	}
	for i := range all {
		all[i].Body, err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(all[i].File)))
		if err != nil {
			return nil, fmt.Errorf("read the delivery: %w", err)
		}
	}
	return all, nil
}

// Event is what a worker counts.
type Event struct {
	Name       string
	Repository string
}

// RejectError says that a body is useless, with the code for DeadLetter.
type RejectError struct {
	Code string
	Err  error
}

func (e *RejectError) Error() string { return e.Code + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *RejectError) Unwrap() error { return e.Err }

// Parse finds the repository of a delivery. Every error is a *RejectError.
func Parse(name, contentType string, body []byte) (Event, error) {
	reject := func(code string, err error) (Event, error) {
		return Event{}, &RejectError{Code: code, Err: err}
	}
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != "application/json" {
		return reject(CodeContentType, fmt.Errorf("content type %q is not application/json", contentType))
	}
	var payload struct {
		Repository *struct {
			FullName string `json:"full_name"`
		} `json:"repository"`
	}
	err := json.Unmarshal(body, &payload)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return reject(CodeWrongType, fmt.Errorf("field %q holds a JSON %s", wrong.Field, wrong.Value))
	}
	if err != nil {
		return reject(CodeMalformedJSON, err)
	}
	if payload.Repository == nil || payload.Repository.FullName == "" {
		return reject(CodeMissingRepository, errors.New("no repository.full_name"))
	}
	return Event{Name: name, Repository: payload.Repository.FullName}, nil
}
