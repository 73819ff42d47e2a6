// Package testdoc reads commands in documents, so that tests can type them.
package testdoc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// Session returns the commands below the heading "A session" of a document in docs.
func Session(t *testing.T, document string) (commands []string) {
	t.Helper()
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, session, _ := strings.Cut(string(text), "\n## A session\n")
	session, _, _ = strings.Cut(session, "\n## ")
	for line := range strings.Lines(session) {
		if command, found := strings.CutPrefix(line, "    "); found {
			commands = append(commands, command)
		}
	}
	if len(commands) < 5 {
		t.Fatalf("%s has %d commands to type", document, len(commands))
	}
	return commands
}
