package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube/testcsi"
)

// serve returns a client of a fake driver.
func serve(t *testing.T, f *testcsi.Fake, within time.Duration) *Client {
	t.Helper()
	root, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	f.Serve(t, root, "x.testcsi")
	c, err := New(Options{Name: "x.testcsi", Endpoint: filepath.Join(root, "plugins/x.testcsi/csi.sock"), Timeout: within})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestAsk checks that a driver's facts are read, and that invalid IDs and labels are refused.
func TestAsk(t *testing.T) {
	t.Parallel()
	segments := func(key, value string) *csi.Topology { return &csi.Topology{Segments: map[string]string{key: value}} }
	for _, tc := range []struct {
		name  string
		info  *csi.NodeGetInfoResponse
		can   []csi.NodeServiceCapability_RPC_Type
		max   int32
		fails string
	}{
		{name: "all", info: &csi.NodeGetInfoResponse{NodeId: "i", MaxVolumesPerNode: 3, AccessibleTopology: segments("x.y/zone", "a")}, max: 3,
			can: []csi.NodeServiceCapability_RPC_Type{
				csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
				csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
				csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, 99,
			}},
		{name: "more volumes than an int32", info: &csi.NodeGetInfoResponse{NodeId: "i", MaxVolumesPerNode: 1 << 40}, max: 1<<31 - 1},
		{name: "negative number of volumes", info: &csi.NodeGetInfoResponse{NodeId: "i", MaxVolumesPerNode: -1}},
		{name: "no id", info: &csi.NodeGetInfoResponse{}, fails: "node ID of 0 bytes"},
		{name: "a long id", info: &csi.NodeGetInfoResponse{NodeId: strings.Repeat("i", 193)}, fails: "node ID of 193 bytes"},
		{name: "no label", info: &csi.NodeGetInfoResponse{NodeId: "i", AccessibleTopology: segments("x y", "a")}, fails: "must be a valid label"},
		{name: "no value", info: &csi.NodeGetInfoResponse{NodeId: "i", AccessibleTopology: segments("x", "a/b")}, fails: "must be a valid label"},
		{name: "huge", info: &csi.NodeGetInfoResponse{NodeId: strings.Repeat("i", 2*maxMessage)}, fails: "ResourceExhausted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, &testcsi.Fake{Node: tc.info, Can: tc.can}, time.Minute)
			f, err := c.ReadFacts(testdeadline.Context(t, 5*time.Second))
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("%+v, %v", f, err)
				}
				return
			}
			all := Can{}
			if len(tc.can) > 0 {
				all = Can{Stage: true, Group: true, ManyWriters: true, Expand: true, Stats: true}
			}
			segments := len(tc.info.GetAccessibleTopology().GetSegments())
			if err != nil || f.NodeID != "i" || f.MaxVolumes != tc.max || f.Can != all || len(f.Topology) != segments {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
}

// TestErrors checks that an error names driver, call and code, and that its message is limited and printable.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Internal, codes.NotFound, codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded} {
		f := &testcsi.Fake{}
		f.Set(func(context.Context, string) error { return status.Error(code, "no\x1b[31m"+strings.Repeat("x", 4096)) }, nil)
		c := serve(t, f, time.Minute)
		_, err := c.NodeUnpublishVolume(testdeadline.Context(t, 5*time.Second), &csi.NodeUnpublishVolumeRequest{VolumeId: "v"})
		var got *Error
		if !errors.As(err, &got) || got.Code != code || got.Call != "NodeUnpublishVolume" || got.Driver != "x.testcsi" {
			t.Errorf("%v: %v", code, err)
		}
		if len(err.Error()) > maxWords+200 || strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%v: %d bytes", code, len(err.Error()))
		}
	}
}

// TestDeadline checks that a hanging call ends, and that a call without a server fails.
func TestDeadline(t *testing.T) {
	t.Parallel()
	f := &testcsi.Fake{}
	f.Set(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, nil)
	c := serve(t, f, 100*time.Millisecond)
	var failed *Error
	if _, err := c.ReadFacts(t.Context()); !errors.As(err, &failed) || failed.Code != codes.DeadlineExceeded {
		t.Errorf("hangs: %v", err)
	}
	nobody, err := New(Options{Name: "n", Endpoint: filepath.Join(t.TempDir(), "none.sock"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	_, err = nobody.ReadFacts(testdeadline.Context(t, 5*time.Second))
	if err == nil || !strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("no server: %v", err)
	}
}
