// Package hostio connects the standard streams of a process of the host to a process in a pod's VM.
//
// The process of the host, the surrogate, stands for the process in the VM. It connects to the socket Name in the
// pod's state directory and sends its open files. The pod's shim reads and writes these files itself, so the bytes of
// the streams do not pass through the surrogate. The connection is a lease: if it ends without a goodbye, the shim
// kills the process in the VM. If the shim dies, the surrogate connects to the next shim and sends everything again.
//
// # Protocol
//
// Both sides send frames: one byte for the kind, the payload's length as two bytes, most significant byte first, and
// the payload of at most MaxPayload bytes. The surrogate sends Hello first, in one message with its files. The shim
// answers with Accepted, or with Refused and the end of the connection. Then the surrogate may send Resize, Signal and,
// as its last frame, Leave. The shim sends Exit as its last frame, after the last byte of the output.
//
// Many surrogates run at once, so the package is small and does without package net.
package hostio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/bulkhead-project/bulkhead/internal/progress"
)

// Name is the socket's name in a pod's state directory.
const Name = "host.sock"

// MaxPayload bounds the payload of a frame, in bytes.
const MaxPayload = 1 << 11

const headerSize = 3

// Kind is the kind of a frame.
type Kind byte

// The kinds of frames.
const (
	KindHello    Kind = 1    // Hello; with the files
	KindResize   Kind = 2    // rows and columns, two bytes each
	KindSignal   Kind = 3    // the signal's number, one byte
	KindLeave    Kind = 4    // empty
	KindAccepted Kind = 0x81 // empty
	KindRefused  Kind = 0x82 // the class of the error, one byte, and its text
	KindExit     Kind = 0x83 // Exit
)

// Errors of a connection.
var (
	// ErrProtocol is returned for malformed frames.
	ErrProtocol = errors.New("malformed message")
	// ErrNotFound is returned if the shim does not know the process.
	ErrNotFound = errors.New("no such process")
	// ErrBusy is returned if the process has a surrogate already, or the shim has too many connections.
	ErrBusy = errors.New("the process has a surrogate")
	// ErrRefused is returned if the shim refuses the files or the process for another reason.
	ErrRefused = errors.New("refused")
)

// classes are the errors that cross the connection, by their number in KindRefused. The last one stands for others.
var classes = []error{ErrNotFound, ErrBusy, ErrRefused}

// Process names a process in a pod's VM: the first one of a container (Exec empty) or an exec'd one.
type Process struct{ Container, Exec string }

// Hello is the first message of a connection. The fields say which files come with it, in this order. The
// files of the progress (internal/progress) come last.
type Hello struct {
	Process
	// Terminal is a terminal for all three streams. It comes alone.
	Terminal              bool
	Stdin, Stdout, Stderr bool
	// Rows and Columns are the terminal's size; 0 means unknown.
	Rows, Columns uint16
}

// Files returns the number of files that come with the message.
func (h Hello) Files() int {
	n := progress.Count
	for _, has := range []bool{h.Terminal, h.Stdin, h.Stdout, h.Stderr} {
		if has {
			n++
		}
	}
	return n
}

// version is the protocol's version, the first byte of Hello.
const version = 1

// The flags of Hello.
const (
	flagTerminal = 1 << iota
	flagStdin
	flagStdout
	flagStderr
)

// Encode returns the payload of KindHello.
func (h Hello) Encode() ([]byte, error) {
	if h.Container == "" || len(h.Container) > 255 || len(h.Exec) > 255 {
		return nil, fmt.Errorf("%w: ids of %d and %d bytes: must be 1 to 255", ErrProtocol, len(h.Container), len(h.Exec))
	}
	var flags byte
	for i, has := range []bool{h.Terminal, h.Stdin, h.Stdout, h.Stderr} {
		if has {
			flags |= 1 << i
		}
	}
	b := append([]byte{version, flags, byte(len(h.Container))}, h.Container...)
	b = append(append(b, byte(len(h.Exec))), h.Exec...)
	return append(b, encodeSize(h.Rows, h.Columns)...), nil
}

// DecodeHello decodes the payload of KindHello.
func DecodeHello(b []byte) (Hello, error) {
	if len(b) < 2 || b[0] != version {
		return Hello{}, fmt.Errorf("%w: a first message of %d bytes", ErrProtocol, len(b))
	}
	flags := b[1]
	h := Hello{
		Terminal: flags&flagTerminal != 0, Stdin: flags&flagStdin != 0, Stdout: flags&flagStdout != 0, Stderr: flags&flagStderr != 0,
	}
	b = b[2:]
	for _, id := range []*string{&h.Container, &h.Exec} {
		if len(b) == 0 || len(b) <= int(b[0]) {
			return Hello{}, fmt.Errorf("%w: an id that is too long", ErrProtocol)
		}
		end := 1 + int(b[0])
		*id, b = string(b[1:end]), b[end:]
	}
	rows, columns, err := DecodeSize(b)
	if err == nil && (h.Container == "" || flags > 0xf || h.Terminal && flags != flagTerminal) {
		err = fmt.Errorf("%w: flags %#x", ErrProtocol, flags)
	}
	if err != nil {
		return Hello{}, err
	}
	h.Rows, h.Columns = rows, columns
	return h, nil
}

// encodeSize returns the payload of KindResize.
func encodeSize(rows, columns uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), columns)
}

// DecodeSize decodes the payload of KindResize.
func DecodeSize(b []byte) (rows, columns uint16, err error) {
	if len(b) != 4 {
		return 0, 0, fmt.Errorf("%w: a terminal's size of %d bytes", ErrProtocol, len(b))
	}
	return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), nil
}

// Exit describes how a process ended.
type Exit struct {
	// Code is 0 to 255: 128+n for signal n, and 137 if the VM ended first.
	Code int
	// Signal is the signal that ended the process, or 0.
	Signal int
	// Reason is a word such as Completed, Error, OOMKilled or VMKilled, and Message a text for users.
	Reason, Message string
}

const maxReason, maxMessage = 64, 1024

// Encode returns the payload of KindExit. It shortens texts that are too long.
func (e Exit) Encode() []byte {
	reason := e.Reason[:min(len(e.Reason), maxReason)]
	b := append([]byte{byte(e.Code), byte(e.Signal), byte(len(reason))}, reason...)
	return append(b, e.Message[:min(len(e.Message), maxMessage)]...)
}

// DecodeExit decodes the payload of KindExit. The shim is as untrusted as its guest, so the texts come out without
// characters that a terminal would obey.
func DecodeExit(b []byte) (Exit, error) {
	if len(b) < 3 || len(b) < 3+int(b[2]) || b[2] > maxReason || len(b) > 3+int(b[2])+maxMessage {
		return Exit{}, fmt.Errorf("%w: an exit of %d bytes", ErrProtocol, len(b))
	}
	end := 3 + int(b[2])
	e := Exit{Code: int(b[0]), Signal: int(b[1]), Reason: plain(b[3:end]), Message: plain(b[end:])}
	if e.Signal > 64 {
		return Exit{}, fmt.Errorf("%w: signal %d", ErrProtocol, e.Signal)
	}
	return e, nil
}

// EncodeRefusal returns the payload of KindRefused: ErrNotFound, ErrBusy or ErrRefused, and a text for users.
func EncodeRefusal(class error, text string) []byte {
	number := slices.Index(classes, class)
	if number < 0 {
		number = len(classes) - 1
	}
	return append([]byte{byte(number)}, text[:min(len(text), maxMessage)]...)
}

// decodeRefusal returns the error in the payload of KindRefused.
func decodeRefusal(b []byte) error {
	if len(b) == 0 || int(b[0]) >= len(classes) || len(b) > 1+maxMessage {
		return fmt.Errorf("%w: a refusal of %d bytes", ErrProtocol, len(b))
	}
	return fmt.Errorf("%w: %s", classes[b[0]], plain(b[1:]))
}

// plain replaces all bytes but printable ASCII.
func plain(b []byte) string {
	out := make([]byte, len(b))
	for i, c := range b {
		if out[i] = c; c < ' ' || c > '~' {
			out[i] = '?'
		}
	}
	return string(out)
}

// AppendFrame appends a frame to b. The payload must not exceed MaxPayload.
func AppendFrame(b []byte, kind Kind, payload []byte) []byte {
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	return append(b, payload...)
}

// ReadFrame reads a frame. It returns io.EOF only between frames.
func ReadFrame(r io.Reader) (Kind, []byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n, err := length(head[:])
	if err != nil {
		return 0, nil, err
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return Kind(head[0]), payload, nil
}

// ParseFrame splits a message that is exactly one frame.
func ParseFrame(b []byte) (Kind, []byte, error) {
	if len(b) < headerSize {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, len(b))
	}
	n, err := length(b)
	if err == nil && n != len(b)-headerSize {
		err = fmt.Errorf("%w: %d bytes of payload, not %d", ErrProtocol, len(b)-headerSize, n)
	}
	return Kind(b[0]), b[headerSize:], err
}

func length(head []byte) (int, error) {
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > MaxPayload {
		return 0, fmt.Errorf("%w: %d bytes of payload", ErrProtocol, n)
	}
	return n, nil
}
