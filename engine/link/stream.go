package link

import (
	"context"
	"net/url"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// Stream identifies the byte stream of an exec, an attach, a copy, a port or a console. Package shim/stream dials
// Socket once, with Token.
type Stream struct{ Socket, Token string }

// Scheme is the scheme of streams' URLs.
const Scheme = "bulkhead+unix"

// URL returns the stream's URL for a client in another process: "bulkhead+unix://PATH?token=TOKEN".
func (s Stream) URL() string {
	u := url.URL{Scheme: Scheme, Path: s.Socket, RawQuery: url.Values{"token": {s.Token}}.Encode()}
	return u.String()
}

// Open opens a stream.
func (c *Conn) Open(ctx context.Context, req *shimv1.OpenRequest) (Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	res, err := c.Ext.Open(ctx, req)
	if err != nil {
		return Stream{}, err
	}
	return Stream{Socket: c.Streams, Token: res.GetToken()}, nil
}
