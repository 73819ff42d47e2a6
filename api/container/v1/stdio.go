package containerv1

import (
	"errors"
	"fmt"
	"strings"
)

// Stdio is the destination of a process's standard streams: Log, Stream, Discard or Descriptors. Clients may attach
// at any time, except to Descriptors.
type Stdio interface {
	isStdio()
	// Input is the process's stdin.
	Input() Stdin
}

// Stdin is the stdin of a process with a Log, a Stream or Discard.
type Stdin string

// The kinds of stdin.
const (
	NoStdin   Stdin = ""            // /dev/null
	OpenStdin Stdin = "stream:"     // any attached client; it stays open afterwards
	StdinOnce Stdin = "stream:once" // the first attached client; it is closed afterwards
)

// Log is a file for the output in the CRI's log format.
type Log struct {
	File  string
	Stdin Stdin
}

// Stream is the first attached client: output waits for it from the start of the process, and is discarded after
// the client's end.
type Stream struct{ Stdin Stdin }

// Discard discards the output. Clients that attach see later output.
type Discard struct{ Stdin Stdin }

// Descriptors are open files of a process of the host, of any kind, or one terminal. That process connects to the shim's
// host.sock (package shim/hostio) and sends them. The output waits for it from the start of the process.
type Descriptors struct {
	// Stdin means that the process has a stdin. It is closed at the end of the file. Otherwise it is /dev/null.
	Stdin bool
}

func (Log) isStdio()         {}
func (Stream) isStdio()      {}
func (Discard) isStdio()     {}
func (Descriptors) isStdio() {}

// Input is the process's stdin.
func (s Log) Input() Stdin { return s.Stdin }

// Input is the process's stdin.
func (s Stream) Input() Stdin { return s.Stdin }

// Input is the process's stdin.
func (s Discard) Input() Stdin { return s.Stdin }

// Input is the process's stdin.
func (s Descriptors) Input() Stdin {
	if s.Stdin {
		return OpenStdin
	}
	return NoStdin
}

// The words in the Task API's stdio. Other non-empty values are paths, which is how containerd names a fifo.
const (
	wordStream = "stream:"
	wordHost   = "host:"
	prefixLog  = "log:"
)

// EncodeStdio returns s in the form of containerd's Task API. ParseStdio is its inverse.
func EncodeStdio(s Stdio) (stdin, stdout, stderr string) {
	switch s := s.(type) {
	case Log:
		return string(s.Stdin), prefixLog + s.File, ""
	case Stream:
		return string(s.Stdin), wordStream, ""
	case Descriptors:
		if s.Stdin {
			stdin = wordHost
		}
		return stdin, wordHost, ""
	case Discard:
		return string(s.Stdin), "", ""
	}
	return "", "", ""
}

// ParseStdio is the inverse of EncodeStdio. stderr may repeat stdout. The error matches ErrInvalid, or
// errors.ErrUnsupported for a path.
func ParseStdio(stdin, stdout, stderr string) (Stdio, error) {
	if stdout == wordHost && (stdin == "" || stdin == wordHost) && (stderr == "" || stderr == wordHost) {
		return Descriptors{Stdin: stdin == wordHost}, nil
	}
	in := Stdin(stdin)
	if in != NoStdin && in != OpenStdin && in != StdinOnce {
		return nil, unknown("stdin", stdin)
	}
	if stderr != "" && stderr != stdout {
		return nil, unknown("stderr", stderr)
	}
	switch name, isLog := strings.CutPrefix(stdout, prefixLog); {
	case stdout == "":
		return Discard{Stdin: in}, nil
	case stdout == wordStream:
		return Stream{Stdin: in}, nil
	case isLog && name != "":
		return Log{File: name, Stdin: in}, nil
	}
	return nil, unknown("stdout", stdout)
}

func unknown(which, word string) error {
	if strings.HasPrefix(word, "/") {
		return fmt.Errorf("%s %.128q: a path: %w", which, word, errors.ErrUnsupported)
	}
	return fmt.Errorf("%w: %s %.128q", ErrInvalid, which, word)
}
