package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is a pod of one container, with the durations of the calls that started and removed it.
type Pod struct {
	ID                                string
	Run, Create, Start, Stop, Removal time.Duration

	container string
}

// timed calls f and adds its duration to took.
func timed(took *time.Duration, f func() error) error {
	began := time.Now()
	err := f()
	*took = time.Since(began)
	return err
}

// Start starts a pod and returns when its container runs. After an error, parts of the pod may exist.
func (k *Kubelet) Start(ctx context.Context, name, image string, command ...string) (*Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	mode := runtimeapi.NamespaceMode_POD
	if k.o.HostNetwork {
		mode = runtimeapi.NamespaceMode_NODE
	}
	options := &runtimeapi.NamespaceOption{Network: mode, Pid: runtimeapi.NamespaceMode_CONTAINER}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "bench"},
		LogDirectory: filepath.Join(k.o.Logs, name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    k.o.Cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options},
		},
	}
	p := &Pod{}
	err := timed(&p.Run, func() error {
		box, err := k.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		p.ID = box.GetPodSandboxId()
		return err
	})
	if err != nil {
		return p, fmt.Errorf("run pod %s: %w", name, err)
	}
	err = timed(&p.Create, func() error {
		made, err := k.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: p.ID, SandboxConfig: config,
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: image},
				Command: command, LogPath: name + ".log",
				Linux: &runtimeapi.LinuxContainerConfig{
					SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: options},
				},
			},
		})
		p.container = made.GetContainerId()
		return err
	})
	if err != nil {
		return p, fmt.Errorf("create the container of pod %s: %w", name, err)
	}
	err = timed(&p.Start, func() error {
		_, err := k.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.container})
		return err
	})
	if err != nil {
		return p, fmt.Errorf("start the container of pod %s: %w", name, err)
	}
	return p, nil
}

// Exec runs a command in a pod's container until it exits, and returns the duration.
func (k *Kubelet) Exec(ctx context.Context, p *Pod, command ...string) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = timed(&took, func() error {
		r, err := k.cri.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.container, Cmd: command})
		if err == nil && r.GetExitCode() != 0 {
			err = fmt.Errorf("%v exited with %d: %s", command, r.GetExitCode(), r.GetStderr())
		}
		return err
	})
	return took, err
}

// RoundTrip requests a container's figures, which takes one round trip to the pod.
func (k *Kubelet) RoundTrip(ctx context.Context, p *Pod) (took time.Duration, err error) {
	err = timed(&took, func() error {
		_, err := k.cri.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: p.container})
		return err
	})
	return took, err
}

// End stops a pod, which kills its container, and removes the pod.
func (k *Kubelet) End(ctx context.Context, p *Pod) error {
	return k.EndWith(ctx, p, func() error { return nil })
}

// EndWith is End, and calls between after the stop and before the removal.
func (k *Kubelet) EndWith(ctx context.Context, p *Pod, between func() error) error {
	if p.ID == "" {
		return nil // it was never created
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := timed(&p.Stop, func() error {
		_, err := k.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.ID})
		return err
	})
	if err != nil {
		return fmt.Errorf("stop pod %s: %w", p.ID, err)
	}
	if err := between(); err != nil {
		return err
	}
	err = timed(&p.Removal, func() error {
		_, err := k.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.ID})
		return err
	})
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", p.ID, err)
	}
	return nil
}

// Phase is a part of a call of Bulkhead.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// Phases returns the phases that Bulkhead reports for a pod's calls.
func (k *Kubelet) Phases(ctx context.Context, p *Pod) ([]Phase, error) {
	r, err := k.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
	if err != nil {
		return nil, err
	}
	var facts struct {
		Phases []Phase `json:"phases"`
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["facts"]), &facts); err != nil {
		return nil, fmt.Errorf("read the facts of pod %s: %w", p.ID, err)
	}
	return facts.Phases, nil
}
