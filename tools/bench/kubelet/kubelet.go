// Package kubelet makes the CRI calls of a kubelet to a runtime, and times them.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

const (
	startPatience = 30 * time.Second
	// patience bounds the start and the end of a pod.
	patience = time.Minute
	// retry is the interval between polls for a state that nothing reports.
	retry = 10 * time.Millisecond
)

// Options apply to all pods of a runtime.
type Options struct {
	// Socket is the runtime's socket.
	Socket string
	// Logs is the directory with a log directory for each pod.
	Logs string
	// Cgroup is the parent cgroup of the pods.
	Cgroup string
	// HostNetwork runs pods on the host's network instead of CNI's.
	HostNetwork bool
}

// Kubelet runs pods of one container. It is safe for concurrent use.
type Kubelet struct {
	// Version is the runtime's version.
	Version string

	o    Options
	conn *grpc.ClientConn
	cri  runtimeapi.RuntimeServiceClient
}

// Pull pulls an image.
func (k *Kubelet) Pull(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := runtimeapi.NewImageServiceClient(k.conn).PullImage(ctx, &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: image},
	})
	return err
}

// Dial waits until a runtime serves its socket. It fails at once if the runtime dies.
func Dial(ctx context.Context, o Options, died <-chan struct{}) (*Kubelet, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+o.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	k := &Kubelet{o: o, conn: conn, cri: runtimeapi.NewRuntimeServiceClient(conn)}
	for {
		v, err := k.cri.Version(ctx, &runtimeapi.VersionRequest{})
		if err == nil {
			k.Version = v.RuntimeVersion
			return k, nil
		}
		select {
		case <-died:
			return nil, errors.Join(errors.New("the runtime ended"), err, conn.Close())
		case <-time.After(retry):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err, conn.Close())
		}
	}
}

// Close removes all pods and closes the connection.
func (k *Kubelet) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := k.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	errs := []error{err}
	for _, box := range list.GetItems() {
		errs = append(errs, k.End(ctx, &Pod{ID: box.Id}))
	}
	return errors.Join(append(errs, k.conn.Close())...)
}

// Ended waits until the pod's container has exited with code 0.
func (k *Kubelet) Ended(ctx context.Context, p *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r, err := k.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.container})
		switch {
		case err != nil:
			return err
		case r.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED && r.Status.ExitCode != 0:
			return fmt.Errorf("a container exited with %d", r.Status.ExitCode)
		case r.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED:
			return nil
		}
		if err := procs.Wait(ctx, retry); err != nil {
			return err
		}
	}
}
