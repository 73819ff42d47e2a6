// Package testcsi is a CSI driver of one node for tests. Its volumes are ext4 disks, files below a directory, that are
// mounted by loop devices like a real driver's.
package testcsi

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Name is the driver's name.
const Name = "disks.testcsi"

// Driver serves a kubelet. It ends with its test. The test's pods must have ended by then.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	node, root, dir, socket string
	registered              chan error // holds the kubelet's first message

	mu        sync.Mutex
	loops     map[string]string                        // devices of block volumes, by staging path
	published map[string]*csi.NodePublishVolumeRequest // the last request, by volume
	staged    map[string]*csi.NodeStageVolumeRequest
}

// Start serves a driver to the kubelet with that root, and keeps the volumes in a directory of the test.
func Start(t testing.TB, kubeletRoot, node string) *Driver {
	t.Helper()
	d := &Driver{
		node: node, root: kubeletRoot, dir: t.TempDir(), socket: filepath.Join(kubeletRoot, "plugins", Name, "csi.sock"),
		registered: make(chan error, 1), loops: map[string]string{},
		published: map[string]*csi.NodePublishVolumeRequest{}, staged: map[string]*csi.NodeStageVolumeRequest{},
	}
	listen(t, d.socket, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, d)
		csi.RegisterNodeServer(s, d)
	})
	listen(t, filepath.Join(kubeletRoot, "plugins_registry", Name+".sock"), func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, d)
	})
	return d
}

// listen serves on a socket until stop, or the test's end.
func listen(t testing.TB, socket string, register func(*grpc.Server)) (stop func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = sync.OnceFunc(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it served
			t.Errorf("serve %s: %v", socket, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Registered returns when the kubelet has registered the driver.
func (d *Driver) Registered(ctx context.Context) error {
	select {
	case err := <-d.registered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// GetInfo returns the driver's endpoint to the kubelet's plugin watcher.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: Name, Endpoint: d.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (d *Driver) NotifyRegistrationStatus(
	_ context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	var err error
	if !s.GetPluginRegistered() {
		err = errors.New(s.GetError())
	}
	select {
	case d.registered <- err:
	default: // not the first message
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo implements csi.IdentityServer.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: "1"}, nil
}

// Probe implements csi.IdentityServer.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// NodeGetInfo implements csi.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

// NodeGetCapabilities implements csi.NodeServer.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, one := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	} {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: one}},
		})
	}
	return out, nil
}

// Asked returns the last requests for a volume, nil if there were none.
func (d *Driver) Asked(volume string) (*csi.NodeStageVolumeRequest, *csi.NodePublishVolumeRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.staged[volume], d.published[volume]
}
