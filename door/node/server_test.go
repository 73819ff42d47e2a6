package node

import (
	"net/http"
	"testing"
)

// TestServer: no client holds an idle connection for ever, and no stream is cut.
func TestServer(t *testing.T) {
	t.Parallel()
	s := server(http.NotFoundHandler(), nil)
	if s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > 64<<10 {
		t.Errorf("a header may have %d bytes", s.MaxHeaderBytes)
	}
	if s.ReadHeaderTimeout <= 0 || s.IdleTimeout <= 0 || s.ReadTimeout != 0 || s.WriteTimeout != 0 {
		t.Errorf("header %s, idle %s, read %s, write %s", s.ReadHeaderTimeout, s.IdleTimeout, s.ReadTimeout, s.WriteTimeout)
	}
}
