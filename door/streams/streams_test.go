package streams

import (
	"context"
	"testing"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestFirstSize: a command starts with the size that its client sends first, or without one.
func TestFirstSize(t *testing.T) {
	t.Parallel()
	sizes := make(chan remotecommand.TerminalSize, 2)
	sizes <- remotecommand.TerminalSize{Width: 77, Height: 33}
	sizes <- remotecommand.TerminalSize{Width: 1, Height: 1}
	if got := firstSize(t.Context(), sizes); got != (stream.Size{Width: 77, Height: 33}) {
		t.Errorf("%+v", got)
	}
	if len(sizes) != 1 {
		t.Error("more than the first size was read")
	}
	ended := make(chan remotecommand.TerminalSize)
	close(ended)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, from := range map[context.Context]chan remotecommand.TerminalSize{t.Context(): ended, gone: nil} {
		if got := firstSize(ctx, from); got != (stream.Size{}) {
			t.Errorf("%+v", got)
		}
	}
}
