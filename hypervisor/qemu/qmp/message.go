package qmp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxMessage bounds one message from the monitor, in bytes. QEMU is not trusted, and the longest honest answer (the
// block graph) is far below it.
const MaxMessage = 1 << 20

// ErrProtocol is returned when the other side does not speak QMP: garbage, an overlong message, or an unsolicited
// reply. The connection ends.
var ErrProtocol = errors.New("monitor does not speak QMP")

// Event is an asynchronous message.
type Event struct {
	Name string
	Data json.RawMessage
}

// CommandError is a command's refusal by QEMU.
type CommandError struct {
	Command string
	Class   string
	Desc    string
}

func (e *CommandError) Error() string { return fmt.Sprintf("%s: %s", e.Command, e.Desc) }

// message is any message of the server. It has exactly one of QMP, Event, Return and Error.
type message struct {
	QMP    json.RawMessage `json:"QMP"`
	Event  string          `json:"event"`
	Data   json.RawMessage `json:"data"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	ID *uint64 `json:"id"`
}

type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
	ID        uint64 `json:"id"`
}

// readMessage reads one line of at most MaxMessage bytes. Its buffer grows with the bytes that arrive.
func readMessage(r *bufio.Reader) (message, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > MaxMessage {
			return message{}, fmt.Errorf("%w: message longer than %d bytes", ErrProtocol, MaxMessage)
		}
		if err == nil && line == nil {
			return decode(part)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return decode(line)
		case errors.Is(err, io.EOF) && len(line) > 0:
			return message{}, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return message{}, err
		}
	}
}

func decode(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	kinds := 0
	for _, there := range []bool{m.QMP != nil, m.Event != "", m.Return != nil, m.Error != nil} {
		if there {
			kinds++
		}
	}
	if kinds != 1 {
		return message{}, fmt.Errorf("%w: a message of %d kinds", ErrProtocol, kinds)
	}
	return m, nil
}
