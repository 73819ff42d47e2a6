package hostio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrLeft is returned by Wait after Leave or Close.
var ErrLeft = errors.New("the surrogate has left")

// Wait waits for the process's end, also across shims, and returns its exit after all of its output was written. The
// caller then closes the connection. It returns an error if ctx ends, after Leave and Close, if the pod is gone
// (ErrGone), and if the next shim refuses the process.
func (c *Conn) Wait(ctx context.Context) (Exit, error) {
	for {
		exit, err := c.exit(ctx)
		switch {
		case err == nil:
			return exit, nil
		case ctx.Err() != nil:
			return Exit{}, ctx.Err()
		case errors.Is(err, ErrProtocol), errors.Is(err, ErrLeft):
			return Exit{}, err
		}
		if err := c.reconnect(ctx); err != nil {
			return Exit{}, fmt.Errorf("connect to the next shim: %w", err)
		}
	}
}

// exit reads the exit from the connection. Any error that matches none of this package's means that the shim died.
func (c *Conn) exit(ctx context.Context) (Exit, error) {
	c.mu.Lock()
	sock, closed := c.sock, c.closed
	c.mu.Unlock()
	if closed {
		return Exit{}, ErrLeft
	}
	if sock == nil {
		return Exit{}, ErrNotServed
	}
	_ = sock.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = sock.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	kind, payload, err := ReadFrame(sock)
	if err == nil && kind == KindExit {
		return DecodeExit(payload)
	}
	if err == nil {
		err = fmt.Errorf("%w: a frame of kind %d", ErrProtocol, kind)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Exit{}, ErrLeft
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.drop()
	}
	return Exit{}, err
}

// reconnect connects to the next shim as soon as there is one.
func (c *Conn) reconnect(ctx context.Context) error {
	w := c.dir.watch()
	defer w.close()
	for {
		err := c.connect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.mu.Lock()
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return ErrLeft
		}
		if !errors.Is(err, ErrNotServed) {
			return err
		}
		w.wait(ctx)
	}
}
