package server

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBegin: a server does nothing if its engine ends before the server is on record.
func TestBegin(t *testing.T) {
	if err := awaitByte(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := awaitByte(strings.NewReader("\x01")); err != nil {
		t.Error(err)
	}
}

// TestOwner: only an ordinary user is accepted.
func TestOwner(t *testing.T) {
	for _, owner := range []string{"0", "-1", "root", "4294967296", "1 "} {
		if _, err := prepare(owner); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%q: %v", owner, err)
		}
	}
}

// TestMainWithoutEngine: without an engine the program returns an error.
func TestMainWithoutEngine(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stdin := os.Stdin
	os.Stdin = null
	defer func() { os.Stdin = stdin }()
	if err := Main(context.Background(), ""); err == nil || !strings.Contains(err.Error(), "engine") {
		t.Error(err)
	}
}
