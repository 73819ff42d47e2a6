// Package testdoc reads commands in documents, so that tests can type them.
package testdoc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// Session returns the commands below the heading "A session" of a document in docs.
func Session(t *testing.T, document string) (commands []string) {
	t.Helper()
	for _, block := range Blocks(t, document, "A session") {
		commands = slices.AppendSeq(commands, strings.Lines(block))
	}
	if len(commands) < 5 {
		t.Fatalf("%s has %d commands to type", document, len(commands))
	}
	return commands
}

// Blocks returns the indented blocks below a heading of a document in docs, without the indentation.
func Blocks(t *testing.T, document, heading string) (blocks []string) {
	t.Helper()
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", document, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	inside := false
	for line := range strings.Lines(section) {
		line, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented && inside:
			blocks[len(blocks)-1] += line
		case indented:
			blocks = append(blocks, line)
		}
		inside = indented
	}
	return blocks
}
