package client

import (
	"context"
	"net"
)

// Engine connects to the engine as a door in another process, and starts an engine if none answers (api/engine/v1).
func (c *Client) Engine(ctx context.Context) (net.Conn, error) {
	conn, err := dial(ctx, EngineSocket(c.roots))
	if err == nil || !absent(err) || c.start == nil {
		return conn, err
	}
	if err := c.ensure(ctx); err != nil {
		return nil, err
	}
	return dial(ctx, EngineSocket(c.roots))
}
