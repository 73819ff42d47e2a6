package session

import (
	"fmt"
	"io"
	"strings"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// detachKeys is the default of --detach-keys of attach.
const detachKeys = "ctrl-p,ctrl-q"

// parseKeys parses keys as podman does: single characters and ctrl-X, separated by commas. Without keys, nothing
// detaches.
func parseKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var keys []byte
	for _, key := range strings.Split(text, ",") {
		name, isCtrl := strings.CutPrefix(strings.ToLower(key), "ctrl-")
		switch {
		case isCtrl && len(name) == 1 && (name >= "a" && name <= "z" || strings.Contains(`@[\]^_`, name)):
			keys = append(keys, strings.ToUpper(name)[0]&0x1f)
		case len(key) == 1 && key[0] > ' ' && key[0] < 0x7f:
			keys = append(keys, key[0])
		default:
			return nil, fmt.Errorf("--detach-keys %q: %q is not a key: use characters and ctrl-X, such as %s", text, key, detachKeys)
		}
	}
	return keys, nil
}

// escapeReader passes on its input until the input contains the keys, then it ends. It holds back a possible
// beginning of the keys until the next byte. It is not safe for concurrent use.
type escapeReader struct {
	r    io.Reader
	keys []byte

	held  []byte // a possible beginning of keys
	ready []byte // to be returned
	ended error
}

// Read returns stream.ErrLeft after the keys, never io.EOF: the process's stdin stays open.
func (e *escapeReader) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.ended != nil {
			return 0, e.ended
		}
		n, err := e.r.Read(p)
		for _, b := range p[:n] {
			if e.feed(b) {
				e.ended = stream.ErrLeft
				break
			}
		}
		if err != nil && e.ended == nil {
			e.ready, e.held, e.ended = append(e.ready, e.held...), nil, err
		}
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// feed adds b to the input and reports whether it completes the keys.
func (e *escapeReader) feed(b byte) bool {
	e.held = append(e.held, b)
	for !strings.HasPrefix(string(e.keys), string(e.held)) {
		e.ready = append(e.ready, e.held[0])
		e.held = e.held[1:]
	}
	return len(e.held) == len(e.keys)
}
