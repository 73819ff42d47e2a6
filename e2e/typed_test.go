package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// typed lists the documents with commands that TestTyped runs.
var typed = []string{"README.md", "docs/tutorial.md", "docs/ci.md", "docs/sandboxes.md"}

// TestTyped runs the commands in the console blocks of documents, and compares their output with the document's.
func TestTyped(t *testing.T) {
	t.Parallel()
	testturn.SkipUnless(t, 0, 2)
	w := newForkingWorld(t)
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost/busybox:demo", "docker.io/library/busybox:latest"} {
		w.must(t, "", "image", "load", "oci-archive:"+filepath.Join(root, "build", "busybox.tar"), name)
	}
	for _, document := range typed {
		t.Run(filepath.Base(document), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, document))
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(w.dir, "typed")
			if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			// Other tests may use the port that everybody uses.
			steps := console(strings.ReplaceAll(string(text), "8080", free(t)))
			if len(steps) == 0 {
				t.Fatal("the document has no console block")
			}
			for _, s := range steps {
				w.typeIn(t, dir, s)
			}
		})
	}
}

// step is a command of a document and its output, in which "…" stands for any text.
type step struct {
	line         int
	command, out string
}

// console returns the commands in a document's console blocks. A command begins with "$ ". It goes on in the next line after a
// backslash, and as long as a here-document does.
func console(text string) (steps []step) {
	inside, heredoc := false, false
	for i, line := range strings.Split(text, "\n") {
		var last *step
		if len(steps) > 0 {
			last = &steps[len(steps)-1]
		}
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case heredoc || last != nil && strings.HasSuffix(last.command, "\\") && last.out == "":
			last.command += "\n" + line
			heredoc = heredoc && line != "END"
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: strings.TrimPrefix(line, "$ ")})
			heredoc = strings.Contains(line, "<<'END'")
		default:
			last.out += line + "\n"
		}
	}
	return steps
}

// typeIn runs a step in a directory, as a user who types it.
func (w *world) typeIn(t *testing.T, dir string, s step) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(commandLimit))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", s.command)
	cmd.Dir, cmd.Env = dir, append(w.command(ctx).Env, "PATH="+w.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if !matches(s.out, string(out)) {
		t.Fatalf("line %d: %s: %v:\n%swant:\n%s", s.line, s.command, err, out, s.out)
	}
}

// matches reports whether an output is what a document shows. The widths of columns do not count.
func matches(shown, out string) bool {
	if strings.TrimSpace(shown) == "…" {
		return true
	}
	var lines []string
	for line := range strings.Lines(shown) {
		words := strings.Fields(line)
		for i, word := range words {
			words[i] = strings.ReplaceAll(regexp.QuoteMeta(word), "…", ".*")
		}
		lines = append(lines, strings.Join(words, " +")+" *\n")
	}
	return regexp.MustCompile(fmt.Sprintf("^(?s:%s)$", strings.Join(lines, ""))).MatchString(out)
}
