// Package events keeps the events of a pod in a file that outlives the process. It keeps the last different events,
// each with a count.
package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/broadcast"
	"github.com/bulkhead-project/bulkhead/pod"
)

const (
	// maxEvents bounds the different events of a pod.
	maxEvents = 256
	// maxLines bounds the lines of the file. Beyond it, the file is rewritten.
	maxLines = 4 * maxEvents
	// maxText bounds an event's message, in bytes.
	maxText = 1024
	// maxFile bounds the bytes that are read back.
	maxFile = 8 << 20
)

// Event is one event of a pod, with the number of its occurrences.
type Event struct {
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Count     int       `json:"count"`
	Warning   bool      `json:"warning,omitempty"`
	Reason    string    `json:"reason"`
	Container string    `json:"container,omitempty"` // empty: the pod
	Message   string    `json:"message"`

	seq int64 // of the last occurrence, in this Log
}

func (e Event) same(o Event) bool {
	return e.Warning == o.Warning && e.Reason == o.Reason && e.Container == o.Container && e.Message == o.Message
}

// Log keeps a pod's events in a file, one a line. The last line of the same event counts. The file only informs people:
// if it cannot be read or written, the pod continues. Log is safe for concurrent use.
type Log struct {
	path string
	news *broadcast.Broadcast

	mu    sync.Mutex
	list  []Event // the latest event is the last
	lines int     // of the file
	seq   int64
}

// Open reads the events back from the file at path, without damaged lines. Later events notify news. The Log is usable
// even if Open returns an error.
func Open(path string, news *broadcast.Broadcast) (*Log, error) {
	l := &Log{path: path, news: news}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("read the events: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return l, fmt.Errorf("read the events: %w", err)
	}
	damaged := false
	for line := range bytes.Lines(data) {
		var e Event
		if line[len(line)-1] != '\n' || json.Unmarshal(line, &e) != nil || e.Reason == "" || e.Count < 1 {
			damaged = true
			continue
		}
		l.lines++
		l.replace(e)
	}
	if damaged || l.lines > maxLines {
		return l, l.rewrite()
	}
	return l, nil
}

// replace replaces the previous state of e's event with e.
func (l *Log) replace(e Event) {
	l.list = slices.DeleteFunc(l.list, e.same)
	l.seq++
	e.seq = l.seq
	l.list = append(l.list, e)
	if len(l.list) > maxEvents {
		l.list = slices.Delete(l.list, 0, len(l.list)-maxEvents)
	}
}

// Add adds an event and notifies the watchers.
func (l *Log) Add(happened pod.Event) error {
	e := Event{
		First: happened.Time, Last: happened.Time, Count: 1, Warning: happened.Warning, Reason: happened.Reason,
		Container: happened.Container, Message: happened.Message[:min(len(happened.Message), maxText)],
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.news.Notify()
	for _, old := range l.list {
		if old.same(e) {
			e.First, e.Count = old.First, old.Count+1
		}
	}
	l.replace(e)
	if l.lines >= maxLines {
		return l.rewrite()
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("keep an event: %w", err)
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("keep an event: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	l.lines++
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep an event: %w", err)
	}
	return nil
}

// rewrite rewrites the file with one line for each event.
func (l *Log) rewrite() error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range l.list {
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("keep the events: %w", err)
		}
	}
	l.lines = len(l.list)
	return atomicfile.Write(l.path, b.Bytes(), 0o600, atomicfile.Volatile)
}

// Since returns the events after seq, ordered by their last occurrence, and the seq for the next call; 0 means all
// events.
func (l *Log) Since(seq int64) (list []Event, last int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		if e.seq > seq {
			list = append(list, e)
		}
	}
	return list, l.seq
}
