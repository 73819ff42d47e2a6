package kube

import (
	"context"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testStreams tests the commands that users type for a running pod: streams through the kubelet, and debug.
func (w *world) testStreams(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "streams", testkube.StreamsPod)
	w.ready(ctx, t, "streams")
	w.user.Streams(ctx, t, "streams")
	t.Run("debug", func(t *testing.T) { w.testDebug(ctx, t) })
}

// testDebug inspects a container's processes and files from an ephemeral container.
func (w *world) testDebug(ctx context.Context, t *testing.T) {
	out := w.typed(ctx, t, `tr '\0' ' ' </proc/1/cmdline; echo; cat /proc/1/root`+testkube.Copied+` | wc -c; exit`+"\n",
		"debug", "-q", "-i", "streams", "--image="+w.image, "--target=c", "-c", "look", "--", "sh")
	if want := "sleep 1000 \n2097152\n"; out != want {
		t.Errorf("it sees %q, not %q", out, want)
	}
	w.typed(ctx, t, "", "exec", "streams", "-c", "c", "--", "true")
}
