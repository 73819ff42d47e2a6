package wire

import (
	"io"
	"net"
	"os"
)

func osFile(fd int) *os.File { return os.NewFile(uintptr(fd), "port") }

// discard is a connection to a guest that accepts everything.
type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// sink is a port that accepts everything.
type sink struct{ io.Reader }

func (sink) Write(b []byte) (int, error) { return len(b), nil }
