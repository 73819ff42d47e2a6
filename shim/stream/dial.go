package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/podsock"
)

// ErrRefused is returned by Dial for a stream that the shim refuses to open; the message says why. It comes with
// syscall.ECONNREFUSED if nothing listens on a forwarded port.
var ErrRefused = errors.New("stream refused")

const (
	maxLine = 1024
	// nobody is the prefix of a refusal if nothing listens on the port.
	nobody = "refused: "
)

// refusal is the shim's error.
type refusal struct {
	text  string
	class []error
}

func (r *refusal) Error() string   { return ErrRefused.Error() + ": " + r.text }
func (r *refusal) Unwrap() []error { return r.class }

// Dial connects to the stream socket at address, in the pod's own directory (see podsock.Dial), and opens the stream of
// token. ctx bounds only the opening. The caller closes the connection. It is a *net.UnixConn, which supports half
// closes.
func Dial(ctx context.Context, address, token string) (net.Conn, error) {
	if !validToken(token) {
		return nil, fmt.Errorf("open a stream: %w: invalid token", ErrProtocol)
	}
	conn, err := podsock.Dial(ctx, filepath.Dir(address), filepath.Base(address))
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if _, err = io.WriteString(conn, token+"\n"); err == nil {
		err = accepted(conn)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	return conn, nil
}

// validToken reports whether the shim's token has the form of Server.Issue.
func validToken(token string) bool {
	return len(token) == 2*tokenSize && strings.Trim(token, "0123456789abcdef") == ""
}

func accepted(conn net.Conn) error {
	line, err := readLine(conn)
	if err != nil {
		return err
	}
	if line == "ok" {
		return nil
	}
	if text, closed := strings.CutPrefix(line, nobody); closed {
		return &refusal{text, []error{ErrRefused, syscall.ECONNREFUSED}}
	}
	return &refusal{line, []error{ErrRefused}}
}

// readLine reads byte by byte, because the bytes after the line belong to the stream.
func readLine(r io.Reader) (string, error) {
	var line bytes.Buffer
	one := make([]byte, 1)
	for line.Len() < maxLine {
		if _, err := io.ReadFull(r, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return line.String(), nil
		}
		line.WriteByte(one[0])
	}
	return "", fmt.Errorf("%w: first line too long", ErrProtocol)
}
