package testcsi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Fake is a driver that mounts nothing, and fails on request. It fails the test if a node breaks the order of calls, or
// makes two concurrent calls for one volume. Set its fields before it is served; call Set at any time.
type Fake struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	// Info is its registration, Node its information on the node, and Can its capabilities.
	Info *registration.PluginInfo
	Node *csi.NodeGetInfoResponse
	Can  []csi.NodeServiceCapability_RPC_Type

	t         testing.TB
	mu        sync.Mutex
	before    func(ctx context.Context, call string) error
	after     func(call string) error
	calls     []string
	requests  []proto.Message
	staged    map[string]string // handles, by path
	published map[string]string
	use       *csi.NodeGetVolumeStatsResponse
	busy      map[string]*caller // of the running call for a volume
	statuses  []*registration.RegistrationStatus
	arrived   chan struct{}
}

// Set sets functions to call before and after each call of the node has an effect. The call fails with the error of
// either.
func (f *Fake) Set(before func(ctx context.Context, call string) error, after func(call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// SetUsage sets each volume's reported usage.
func (f *Fake) SetUsage(use ...*csi.VolumeUsage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.use = &csi.NodeGetVolumeStatsResponse{Usage: use}
}

// Serve serves the driver below root, at plugins/NAME/csi.sock, and the registration in plugins_registry, until stop.
func (f *Fake) Serve(t testing.TB, root, name string) (stop func()) {
	t.Helper()
	f.t = t
	f.mu.Lock()
	if f.staged == nil {
		f.staged, f.published, f.busy, f.arrived = map[string]string{}, map[string]string{}, map[string]*caller{}, make(chan struct{}, 1)
	}
	f.mu.Unlock()
	endpoint := filepath.Join(root, "plugins", name, "csi.sock")
	if f.Info == nil {
		f.Info = &registration.PluginInfo{
			Type: registration.CSIPlugin, Name: name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"},
		}
	}
	if f.Node == nil {
		f.Node = &csi.NodeGetInfoResponse{NodeId: "id-of-node"}
	}
	one := listen(t, endpoint, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, f)
		csi.RegisterNodeServer(s, f)
	})
	two := listen(t, filepath.Join(root, "plugins_registry", name+".sock"), func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, f)
	})
	stop = sync.OnceFunc(func() { two(); one() })
	t.Cleanup(stop)
	return stop
}

// Calls returns the names of the node service's calls so far.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// Requests returns the requests of these calls.
func (f *Fake) Requests() []proto.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]proto.Message(nil), f.requests...)
}

// Left returns the numbers of staged and of published volumes.
func (f *Fake) Left() (staged, published int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.staged), len(f.published)
}

// Reboot forgets all mounts, like a reboot of the host.
func (f *Fake) Reboot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.staged)
	clear(f.published)
}

// NextStatus waits for the node's next message on the registration.
func (f *Fake) NextStatus(ctx context.Context) (*registration.RegistrationStatus, error) {
	for {
		f.mu.Lock()
		if len(f.statuses) > 0 {
			w := f.statuses[0]
			f.statuses = f.statuses[1:]
			f.mu.Unlock()
			return w, nil
		}
		f.mu.Unlock()
		select {
		case <-f.arrived:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// GetInfo implements registration.RegistrationServer.
func (f *Fake) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return f.Info, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (f *Fake) NotifyRegistrationStatus(
	_ context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses = append(f.statuses, s)
	select {
	case f.arrived <- struct{}{}:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// NodeGetInfo implements csi.NodeServer.
func (f *Fake) NodeGetInfo(ctx context.Context, r *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return f.Node, f.call(ctx, "info", "", r, func() error { return nil })
}

// NodeGetCapabilities implements csi.NodeServer.
func (f *Fake) NodeGetCapabilities(ctx context.Context, r *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, one := range f.Can {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: one}},
		})
	}
	return out, f.call(ctx, "capabilities", "", r, func() error { return nil })
}

// NodeStageVolume implements csi.NodeServer.
func (f *Fake) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, f.call(ctx, "stage", r.GetVolumeId(), r, func() error {
		if _, err := os.Stat(r.GetStagingTargetPath()); err != nil {
			f.t.Errorf("stage: %v", err)
		}
		f.staged[r.GetStagingTargetPath()] = r.GetVolumeId()
		return nil
	})
}

// NodeUnstageVolume implements csi.NodeServer.
func (f *Fake) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, f.call(ctx, "unstage", r.GetVolumeId(), r, func() error {
		for at, handle := range f.published {
			if handle == r.GetVolumeId() {
				f.t.Errorf("volume %s is unstaged, and published at %s", handle, at)
			}
		}
		delete(f.staged, r.GetStagingTargetPath())
		return nil
	})
}

// NodePublishVolume implements csi.NodeServer.
func (f *Fake) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, f.call(ctx, "publish", r.GetVolumeId(), r, func() error {
		if at := r.GetStagingTargetPath(); at != "" && f.staged[at] != r.GetVolumeId() {
			f.t.Errorf("volume %s is published, and not staged at %s", r.GetVolumeId(), at)
		}
		f.published[r.GetTargetPath()] = r.GetVolumeId()
		if r.GetVolumeCapability().GetBlock() != nil {
			return os.WriteFile(r.GetTargetPath(), nil, 0o600)
		}
		return os.MkdirAll(r.GetTargetPath(), 0o750)
	})
}

// NodeUnpublishVolume implements csi.NodeServer.
func (f *Fake) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, f.call(ctx, "unpublish", r.GetVolumeId(), r, func() error {
		delete(f.published, r.GetTargetPath())
		return os.RemoveAll(r.GetTargetPath())
	})
}

// NodeExpandVolume implements csi.NodeServer.
func (f *Fake) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{}, f.call(ctx, "expand", r.GetVolumeId(), r, func() error { return nil })
}

// NodeGetVolumeStats implements csi.NodeServer.
func (f *Fake) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (out *csi.NodeGetVolumeStatsResponse, err error) {
	err = f.call(ctx, "stats", r.GetVolumeId(), r, func() error {
		if at := r.GetStagingTargetPath(); f.published[r.GetVolumePath()] != r.GetVolumeId() || at != "" && f.staged[at] != r.GetVolumeId() {
			f.t.Errorf("volume %s is not at %s, or not staged at %q", r.GetVolumeId(), r.GetVolumePath(), at)
		}
		out = f.use
		return nil
	})
	return out, err
}

// caller is the client of one call.
type caller struct {
	gone     <-chan struct{}
	deadline time.Time // zero for none
}

func callerOf(ctx context.Context) *caller {
	deadline, _ := ctx.Deadline()
	return &caller{ctx.Done(), deadline}
}

// waits reports whether the caller still waits for its call. Its own deadline is a little earlier than the one here,
// which started when the call arrived.
func (c *caller) waits() bool {
	const transit = 150 * time.Millisecond
	if c == nil || !c.deadline.IsZero() && time.Until(c.deadline) < transit {
		return false
	}
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// call carries out one call.
func (f *Fake) call(ctx context.Context, name, volume string, r proto.Message, effect func() error) error {
	f.mu.Lock()
	f.calls, f.requests = append(f.calls, name), append(f.requests, r)
	before, after := f.before, f.after
	if volume != "" {
		if f.busy[volume].waits() {
			f.t.Errorf("%s of volume %s while another call is under way", name, volume)
		}
		mine := callerOf(ctx)
		f.busy[volume] = mine
		defer func() {
			f.mu.Lock()
			if f.busy[volume] == mine {
				delete(f.busy, volume)
			}
			f.mu.Unlock()
		}()
	}
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, name); err != nil {
			return status.Error(status.Code(err), fmt.Sprintf("on request: %v", err))
		}
	}
	f.mu.Lock()
	err := effect()
	f.mu.Unlock()
	if err == nil && after != nil {
		err = after(name)
	}
	if err != nil && status.Code(err) == codes.Unknown {
		err = status.Error(codes.Internal, err.Error())
	}
	return err
}
