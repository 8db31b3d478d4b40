package config

import (
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// readFile reads a configuration file: one flat mapping of names to plain values.
func readFile(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	defer func() { _ = f.Close() }()
	values, err := decodeFile(f)
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return values, nil
}

// decodeFile works on nodes and not on Go values, so that a number or a switch keeps
// the text that was written and goes the same way as a flag does.
func decodeFile(r io.Reader) (map[string]string, error) {
	var document yaml.Node
	decoder := yaml.NewDecoder(r)
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return map[string]string{}, nil
		}
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one document")
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return map[string]string{}, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want 'name: value' lines", root.Line)
	}
	values := make(map[string]string, len(root.Content)/2)
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if value.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: %s: want a plain value", value.Line, key.Value)
		}
		if _, twice := values[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %s stands twice", key.Line, key.Value)
		}
		if value.Tag == "!!null" {
			return nil, fmt.Errorf("line %d: %s has no value; write '' for an empty one", key.Line, key.Value)
		}
		values[key.Value] = value.Value
	}
	return values, nil
}
