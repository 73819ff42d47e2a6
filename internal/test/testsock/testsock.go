// Package testsock provides another user's socket, for tests in which no connection may be led to it.
package testsock

import (
	"net"
	"testing"
)

// Listen creates a socket at path, until the test's end, and reports its connections. It closes each one first.
func Listen(t testing.TB, path string) <-chan struct{} {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	connected, done := make(chan struct{}, 64), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			select {
			case connected <- struct{}{}:
			default: // enough are reported
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return connected
}
