package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// in runs a command in a directory, and returns its output without the last newline.
func in(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_COMMITTER_DATE=2026-01-31T12:00:00Z",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestVersion: a version is a number that dpkg can order, also in an archive of git and in a copy without git.
func TestVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	copyFile(t, "../hack/version", filepath.Join(tree, "hack/version"))
	copyFile(t, "../.gitattributes", filepath.Join(tree, ".gitattributes"))
	last := "0"
	want := func(where, pattern string) {
		t.Helper()
		got := in(t, where, "hack/version")
		if !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
			t.Errorf("version %q, want %s", got, pattern)
		}
		in(t, dir, "dpkg", "--validate-version", got)
		if where == tree {
			in(t, dir, "dpkg", "--compare-versions", got, "gt", last)
			last = got
		}
	}
	archived := func(pattern string) {
		t.Helper()
		at := filepath.Join(dir, "archived")
		in(t, dir, "rm", "-rf", at)
		in(t, dir, "mkdir", at)
		in(t, tree, "git", "archive", "--output=../tree.tar", "HEAD")
		in(t, at, "tar", "-xf", "../tree.tar")
		want(at, pattern)
		if got := in(t, at, "hack/version", "--epoch"); got != "1769860800" {
			t.Errorf("epoch %s", got)
		}
	}
	const after = `\+20260131120000\.[0-9a-f]{8}`
	want(tree, `0\.0\.0`)
	in(t, tree, "git", "init", "-q")
	in(t, tree, "git", "add", ".")
	in(t, tree, "git", "commit", "-q", "-m", "one")
	want(tree, `0\.0\.0`+after)
	archived(`0\.0\.0` + after)
	in(t, tree, "git", "tag", "v1.2.0-rc1")
	want(tree, `1\.2\.0~rc1`)
	in(t, tree, "git", "tag", "-d", "v1.2.0-rc1")
	in(t, tree, "git", "tag", "-a", "-m", "", "v1.2.0")
	want(tree, `1\.2\.0`)
	archived(`1\.2\.0`)
	copyFile(t, "version_test.go", filepath.Join(tree, "other"))
	in(t, tree, "git", "add", ".")
	want(tree, `1\.2\.0`+after+`\.dirty`)
	in(t, tree, "git", "commit", "-q", "-m", "two")
	last = "1.2.0"
	want(tree, `1\.2\.0`+after)
	archived(`1\.2\.0` + after)
}
