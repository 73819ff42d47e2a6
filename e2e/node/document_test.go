package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// document returns docs/node.md.
func document(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "node.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// heredoc returns the input that docs/node.md gives to a command.
func heredoc(t testing.TB, command string) string {
	t.Helper()
	_, rest, _ := strings.Cut(document(t), "\n    "+command+" <<EOF\n")
	text, _, found := strings.Cut(rest, "\n    EOF\n")
	if !found {
		t.Fatalf("docs/node.md has no %s with a heredoc", command)
	}
	var out strings.Builder
	for line := range strings.Lines(text + "\n") {
		out.WriteString(strings.TrimPrefix(line, "    "))
	}
	return out.String()
}

// lines returns the commands of docs/node.md with that prefix.
func lines(t testing.TB, command string) (out []string) {
	t.Helper()
	for line := range strings.Lines(document(t)) {
		if rest := strings.TrimLeft(line, " "); len(line)-len(rest) >= 4 && strings.HasPrefix(rest, command+" ") {
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

// documentedNode returns the flags of the command in docs/node.md that has the given flag. It replaces the document's
// paths with a kubeconfig and this world's files.
func (w *world) documentedNode(t testing.TB, flag, kubeconfig string) []string {
	t.Helper()
	here := strings.NewReplacer("/etc/bulkhead/node.conf", kubeconfig, "/etc/bulkhead/manifests", w.Manifests(),
		"/etc/bulkhead/bootstrap.conf", w.bootstrap(), "/run/containerd/containerd.sock", w.containerd)
	for _, line := range lines(t, "bulkhead node") {
		if strings.Contains(line, flag+" ") {
			return strings.Fields(here.Replace(line))[2:]
		}
	}
	t.Fatalf("docs/node.md has no bulkhead node with %s", flag)
	return nil
}

// bootstrap returns the file for requesting the first certificate, or "" without a control plane.
func (w *world) bootstrap() string {
	if w.Client == nil {
		return ""
	}
	return w.Bootstrap()
}
