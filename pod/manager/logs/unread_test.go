package logs

import (
	"os"
	"path/filepath"
	"testing"

	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
)

// TestUnread: a log may be rotated once its reader has reached the file that a rotation keeps.
func TestUnread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("2026-01-01T00:00:00Z stdout F "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	anew := func(text string) {
		t.Helper()
		if err := os.Rename(path, podlogs.Older(path)); err != nil {
			t.Fatal(err)
		}
		write(text)
	}
	var got []string
	r := New(dir, Options{Tail: -1}, func(l Line) error { got = append(got, string(l.Data)); return nil })
	defer r.Close()
	expect := func(what string, want bool) {
		t.Helper()
		if unread := r.Unread(path); unread != want {
			t.Errorf("%s: unread is %v", what, unread)
		}
	}
	expect("no log exists", false)
	write("one")
	expect("there is no older file", false)
	anew("two")
	expect("the reader has not started", true)
	if err := r.Drain(); err != nil {
		t.Fatal(err)
	}
	expect("all is read", false)
	anew("three")
	expect("the reader is in the older file", false)
	anew("four")
	expect("the reader is behind it", true)
	if r.Unread(filepath.Join(t.TempDir(), "0.log")) {
		t.Error("another container's log is unread")
	}
	if err := r.Drain(); err != nil {
		t.Fatal(err)
	}
	expect("all is read again", false)
	if len(got) != 4 {
		t.Errorf("read are %q", got)
	}
}
