package top

import (
	"bytes"
	"context"
	"os"
)

// key handles a key and reports whether top continues.
func (t *top) key(k []byte) bool {
	switch string(k) {
	case "q", "Q", "\x03", "\x04":
		return false
	case "c", "C":
		t.view.sort = "cpu"
	case "m", "M":
		t.view.sort = "memory"
	case "n", "N":
		t.view.sort = "name"
	case "\x1b[A", "\x1bOA", "k":
		t.view.move(-1)
	case "\x1b[B", "\x1bOB", "j":
		t.view.move(1)
	case "\x1b[5~":
		t.view.move(3 - t.view.height)
	case "\x1b[6~":
		t.view.move(t.view.height - 3)
	}
	return true
}

// readKeys sends each key as the bytes that the terminal sends for it. It runs until the terminal or the process
// ends, because a read cannot be cancelled.
func readKeys(ctx context.Context, in *os.File, keys chan<- []byte) {
	defer close(keys)
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) > 0; {
			k := firstKey(rest)
			rest = rest[len(k):]
			select {
			case keys <- bytes.Clone(k):
			case <-ctx.Done():
				return
			}
		}
	}
}

// firstKey returns the first key of typed: a byte or an escape sequence.
func firstKey(typed []byte) []byte {
	if typed[0] != 0x1b || len(typed) < 3 || typed[1] != '[' && typed[1] != 'O' {
		return typed[:1]
	}
	for i := 2; i < len(typed); i++ {
		if typed[i] >= 0x40 && typed[i] <= 0x7e {
			return typed[:i+1]
		}
	}
	return typed
}
