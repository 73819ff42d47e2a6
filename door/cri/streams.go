package cri

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/bulkhead-project/bulkhead/door/streams"
	"github.com/bulkhead-project/bulkhead/engine"
)

// streamServer serves streams. Each URL has an unguessable token that is valid for one client and one minute.
type streamServer struct {
	streaming.Server
	*web
}

func newStreams(ctx context.Context, e *engine.Engine) (*streamServer, error) {
	w, err := listenWeb(ctx, "streams", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: w.listener.Addr().String()}
	server, err := streaming.NewServer(config, streams.Runtime{Engine: e})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve streams: %w", err), w.close())
	}
	w.server.Handler = server
	return &streamServer{server, w}, nil
}
