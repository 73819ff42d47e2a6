package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod"
)

const (
	// eventsFile lies beside a pod's record: an event a line, the last line of
	// the same event counts.
	eventsFile = "events.jsonl"
	// maxEvents bounds the different events that are kept of a pod.
	maxEvents = 256
	// maxEventLines bounds the file: with more it is written anew.
	maxEventLines = 4 * maxEvents
	// maxEventText bounds an event's message, in bytes.
	maxEventText = 1024
	// maxEventsFile bounds what is read back.
	maxEventsFile = 8 << 20
)

// happening is an event with how often it happened.
type happening struct {
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Count     int       `json:"count"`
	Warning   bool      `json:"warning,omitempty"`
	Reason    string    `json:"reason"`
	Container string    `json:"container,omitempty"`
	Message   string    `json:"message"`

	seq int64 // of the last time, in this engine
}

func (h happening) same(o happening) bool {
	return h.Warning == o.Warning && h.Reason == o.Reason && h.Container == o.Container && h.Message == o.Message
}

// eventLog keeps a pod's events, on disk too, so that they outlive the
// engine. It is a help for people: what cannot be read or written of it is
// logged by its user, and no pod suffers.
type eventLog struct {
	path string
	news *broadcast

	mu    sync.Mutex
	list  []happening // the one that happened last is the last
	lines int         // of the file
	seq   int64
}

// openEvents reads back what there is; damaged lines are left out.
func openEvents(path string, news *broadcast) (*eventLog, error) {
	l := &eventLog{path: path, news: news}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("read the events: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxEventsFile))
	if err != nil {
		return l, fmt.Errorf("read the events: %w", err)
	}
	damaged := false
	for line := range bytes.Lines(data) {
		var h happening
		if line[len(line)-1] != '\n' || json.Unmarshal(line, &h) != nil || h.Reason == "" || h.Count < 1 {
			damaged = true
			continue
		}
		l.lines++
		l.put(h)
	}
	if damaged || l.lines > maxEventLines {
		return l, l.rewrite()
	}
	return l, nil
}

// put takes h for the latest state of its event.
func (l *eventLog) put(h happening) {
	l.list = slices.DeleteFunc(l.list, h.same)
	l.seq++
	h.seq = l.seq
	l.list = append(l.list, h)
	if len(l.list) > maxEvents {
		l.list = slices.Delete(l.list, 0, len(l.list)-maxEvents)
	}
}

// add takes in an event and tells who watches.
func (l *eventLog) add(e pod.Event) error {
	h := happening{First: e.Time, Last: e.Time, Count: 1, Warning: e.Warning, Reason: e.Reason, Container: e.Container, Message: bounded(e.Message)}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.news.tell()
	for _, old := range l.list {
		if old.same(h) {
			h.First, h.Count = old.First, old.Count+1
		}
	}
	l.put(h)
	if l.lines >= maxEventLines {
		return l.rewrite()
	}
	line, err := json.Marshal(h)
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

// rewrite leaves one line for each event in the file.
func (l *eventLog) rewrite() error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, h := range l.list {
		if err := enc.Encode(h); err != nil {
			return fmt.Errorf("keep the events: %w", err)
		}
	}
	l.lines = len(l.list)
	return atomicfile.Write(l.path, b.Bytes(), 0o600, atomicfile.Volatile)
}

// since returns the events after seq, in the order in which they happened last.
func (l *eventLog) since(seq int64) (list []happening, last int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.list {
		if h.seq > seq {
			list = append(list, h)
		}
	}
	return list, l.seq
}

func bounded(text string) string { return text[:min(len(text), maxEventText)] }

// broadcast wakes everybody who waits.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed at the next tell.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// listEvents sends the events of one pod or of all, and with watch those to come.
func (s *server) listEvents(r *http.Request, out send) error {
	ref := r.PathValue("ref")
	var one *entry
	if ref != "" {
		var err error
		if one, err = s.pods.find(ref); err != nil {
			return err
		}
	}
	watch := r.URL.Query().Get("watch") == "true"
	seen := map[*entry]int64{}
	for {
		next := s.pods.news.next()
		list := s.pods.all()
		if one != nil {
			list = []*entry{one}
		}
		var events []api.Event
		for _, e := range list {
			var happened []happening
			happened, seen[e] = e.events.since(seen[e])
			for _, h := range happened {
				events = append(events, e.apiEvent(h))
			}
		}
		slices.SortStableFunc(events, func(a, b api.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp) })
		for _, event := range events {
			if err := out(api.Message{Event: &event}); err != nil {
				return err
			}
		}
		if !watch || one != nil && one.isGone() {
			return nil
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return nil
		}
	}
}

func (e *entry) isGone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gone
}

func (e *entry) apiEvent(h happening) api.Event {
	event := api.Event{
		Kind: "Event", APIVersion: "v1", Type: "Normal", Reason: h.Reason, Message: h.Message, Count: h.Count,
		FirstTimestamp: h.First.UTC().Truncate(time.Second), LastTimestamp: h.Last.UTC().Truncate(time.Second),
		InvolvedObject: api.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: e.rec.Pod.Name, Namespace: e.rec.Pod.Namespace, UID: string(e.rec.Pod.UID),
		},
	}
	if h.Warning {
		event.Type = "Warning"
	}
	if h.Container != "" {
		event.InvolvedObject.FieldPath = "spec.containers{" + h.Container + "}"
	}
	return event
}
