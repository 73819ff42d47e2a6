package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// web is an HTTP server that is already listening.
type web struct {
	what     string // names the server in errors
	server   *http.Server
	listener net.Listener
}

func listenWeb(ctx context.Context, what, address string) (*web, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", what, err)
	}
	return &web{what, &http.Server{ReadHeaderTimeout: 10 * time.Second}, l}, nil
}

func (w *web) serve() error {
	if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", w.what, err)
	}
	return nil
}

// close closes all connections, since each client of a stream handles that itself.
func (w *web) close() error { return errors.Join(w.server.Close(), ignoreClosed(w.listener.Close())) }

type webs []*web

func (all webs) close() (err error) {
	for _, w := range all {
		err = errors.Join(err, w.close())
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
