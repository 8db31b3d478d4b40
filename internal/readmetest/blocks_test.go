package readmetest

import (
	"fmt"
	"regexp"
	"strings"
)

// block is a fenced piece of code in the README that is marked for a test: a comment
// <!-- readmetest: kind --> stands right above it.
type block struct {
	kind string
	text string
}

var marked = regexp.MustCompile("(?s)<!-- readmetest: ([a-z]+) -->\n```[a-z]+\n(.*?)```\n")

// blocks returns the marked pieces of a page in their order. A mark without a piece of code
// is an error, so that no piece drops out of the test by a slip.
func blocks(page string) ([]block, error) {
	matches := marked.FindAllStringSubmatch(page, -1)
	found := make([]block, 0, len(matches))
	for _, m := range matches {
		found = append(found, block{kind: m[1], text: m[2]})
	}
	if marks := strings.Count(page, "<!-- readmetest:"); marks != len(found) {
		return nil, fmt.Errorf("the page has %d marks and %d pieces of code below them", marks, len(found))
	}
	return found, nil
}

// texts joins the pieces of one kind.
func texts(all []block, kind string) string {
	var b strings.Builder
	for _, one := range all {
		if one.kind == kind {
			b.WriteString(one.text)
		}
	}
	return b.String()
}
