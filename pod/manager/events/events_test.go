package events

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/broadcast"
	"github.com/bulkhead-project/bulkhead/pod"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func happened(l *Log) []string {
	var list []string
	events, _ := l.Since(0)
	for _, h := range events {
		list = append(list, fmt.Sprintf("%s %s x%d over %s", h.Reason, h.Message, h.Count, h.Last.Sub(h.First)))
	}
	return list
}

func opened(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path, &broadcast.Broadcast{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func add(t *testing.T, l *Log, after time.Duration, reason, message string) {
	t.Helper()
	if err := l.Add(pod.Event{Time: noon.Add(after), Reason: reason, Message: message}); err != nil {
		t.Fatal(err)
	}
}

// TestEvents: repeated events are counted, also across engines.
func TestEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	l := opened(t, path)
	add(t, l, 0, "Pulled", "image")
	for i := range 5 {
		add(t, l, time.Duration(i)*time.Minute, "BackOff", "again")
	}
	add(t, l, time.Hour, "Started", "c")
	want := "[Pulled image x1 over 0s BackOff again x5 over 4m0s Started c x1 over 0s]"
	if got := fmt.Sprint(happened(l)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	l = opened(t, path)
	if got := fmt.Sprint(happened(l)); got != want {
		t.Errorf("read back: %s, want %s", got, want)
	}
	add(t, l, 2*time.Hour, "BackOff", "again")
	if got := happened(l); got[len(got)-1] != "BackOff again x6 over 2h0m0s" {
		t.Errorf("counted on: %v", got)
	}
}

// TestEventsBounds: the number of events, their length and the file are bounded.
func TestEventsBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	l := opened(t, path)
	for i := range 3 * maxEvents {
		add(t, l, 0, "Reason", fmt.Sprint("number ", i))
	}
	for range 3 * maxLines {
		add(t, l, 0, "Loop", strings.Repeat("x", 2*maxText))
	}
	got := happened(l)
	if len(got) != maxEvents || !strings.HasPrefix(got[0], fmt.Sprintf("Reason number %d ", 2*maxEvents+1)) {
		t.Errorf("%d events from %q", len(got), got[0])
	}
	data, err := os.ReadFile(path)
	if err != nil || bytes.Count(data, []byte("\n")) > maxLines || len(data) > maxLines*(maxText+300) {
		t.Errorf("%d lines, %d bytes, %v", bytes.Count(data, []byte("\n")), len(data), err)
	}
}

// TestEventsDamaged: a file that was cut anywhere is read, and continued.
func TestEventsDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	l := opened(t, path)
	add(t, l, 0, "Pulled", "image")
	add(t, l, 0, "Created", "c")
	add(t, l, 0, "Started", "c")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for cut := range len(whole) {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l := opened(t, path)
		want := bytes.Count(whole[:cut], []byte("\n"))
		if got := happened(l); len(got) != want {
			t.Fatalf("cut at %d: %v", cut, got)
		}
		add(t, l, 0, "More", "m")
		if got := happened(opened(t, path)); len(got) != want+1 {
			t.Fatalf("cut at %d and continued: %v", cut, got)
		}
	}
	garbage := append([]byte("\x00\xff{}\n{\"reason\":1}\n[]\n"), lines[2]...)
	if err := os.WriteFile(path, garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := happened(opened(t, path)); len(got) != 1 {
		t.Errorf("garbage: %v", got)
	}
}

// TestEventsWatched: a watcher gets only new events.
func TestEventsWatched(t *testing.T) {
	l := opened(t, filepath.Join(t.TempDir(), "events.jsonl"))
	add(t, l, 0, "A", "")
	_, seq := l.Since(0)
	next := l.news.Next()
	add(t, l, time.Second, "A", "")
	select {
	case <-next:
	default:
		t.Error("the watcher was not notified")
	}
	if list, _ := l.Since(seq); len(list) != 1 || list[0].Count != 2 {
		t.Errorf("%v", list)
	}
}
