package cri

import (
	"context"
	"encoding/json"
	"runtime/debug"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// The runtime's name and its version of the CRI.
const (
	RuntimeName = "bulkhead"
	apiVersion  = "v1"
)

// Version returns the runtime's name and version.
func (s *Service) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	version := "0.0.0-devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: RuntimeName, RuntimeVersion: version, RuntimeApiVersion: apiVersion,
	}, nil
}

// Status returns that the runtime is ready, and whether pods reach the network. With verbose, info contains the
// accelerator and the network, with reasons.
func (s *Service) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	net := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
	info := map[string]string{}
	if kind, reason, err := s.engine.Kinds().DefaultNetwork(ctx); err != nil {
		net.Status, net.Reason, net.Message = false, "NetworkPluginNotReady", err.Error()
	} else {
		info["network"], info["networkNote"] = string(kind), reason
	}
	res := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, net,
		}},
		RuntimeHandlers: s.handlers.advertised(),
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if !verbose {
		return res, nil
	}
	accel, note, err := s.engine.Kinds().Accel(ctx)
	if err != nil {
		note = err.Error()
	}
	info["accel"], info["accelNote"] = string(accel), note
	raw, err := json.Marshal(info)
	if err != nil {
		return nil, failure.Wrap(err, "status")
	}
	res.Info = map[string]string{"config": string(raw)}
	return res, nil
}

// RuntimeConfig returns the driver for the host's cgroups, below which clients request pods' groups. The guest's
// cgroups are internal.
func (s *Service) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if hostcgroup.Systemd() {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig ignores the configuration: the network assigns the pods' addresses.
func (s *Service) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// CheckpointContainer is not supported.
func (s *Service) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return failure.Unsupported("checkpoint of a container is not supported")
}

// CheckpointPod is not supported.
func (s *Service) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return failure.Unsupported("checkpoint of a pod is not supported")
}

// RestorePod is not supported.
func (s *Service) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, failure.Unsupported("restore of a pod is not supported")
}
