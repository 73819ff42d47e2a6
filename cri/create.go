package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// createTimeout bounds the creation of a container: under emulation the first
// one of a machine takes its time.
const createTimeout = 2 * time.Minute

// specFile is the OCI specification in a container's bundle.
const specFile = "config.json"

// CreateContainer makes a container in a ready pod and returns its id. A
// request for a name and attempt that is being created, or is created and not
// started, gets that container's id. The end of ctx ends the wait only.
func (s *Service) CreateContainer(ctx context.Context, podID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	p, err := s.find(podID)
	if err != nil {
		return "", err
	}
	meta := config.GetMetadata()
	switch {
	case meta.GetName() == "":
		return "", invalid("the container has no name (metadata.name)")
	case config.GetImage().GetImage() == "":
		return "", invalid("container %s: no image", meta.GetName())
	case len(config.GetDevices()) > 0 || len(config.GetCDIDevices()) > 0:
		return "", unsupported("container %s: devices of the host are not supported yet", meta.GetName())
	case config.GetLogPath() != "" && !filepath.IsLocal(config.GetLogPath()):
		return "", invalid("container %s: log path %q leaves the pod's log directory", meta.GetName(), config.GetLogPath())
	}
	if err := s.refuseInternal(config.GetAnnotations()); err != nil {
		return "", fail(err, "container %s", meta.GetName())
	}
	config = proto.CloneOf(config)
	key := fmt.Sprintf("container %s/%s/%d", p.id, meta.GetName(), meta.GetAttempt())
	return s.do(ctx, key, func(ctx context.Context) (string, error) {
		done, err := s.admit(ctx)
		if err != nil {
			return "", err
		}
		defer done()
		ctx, cancel := context.WithTimeout(ctx, createTimeout)
		defer cancel()
		id, err := p.create(ctx, config)
		if lost(err) {
			id, err = p.create(ctx, config) // by the next shim, and once more only
		}
		return id, fail(err, "create container %s", meta.GetName())
	})
}

func (p *pod) create(ctx context.Context, config *runtimeapi.ContainerConfig) (id string, err error) {
	if id, err := p.existing(config.GetMetadata()); id != "" || err != nil {
		return id, err
	}
	c, err := p.live(ctx)
	if err != nil {
		return "", err
	}
	img, err := p.s.o.Images.Resolve(config.GetImage().GetImage())
	if err != nil {
		return "", err
	}
	volumes, err := p.s.imageVolumes(config, img.ID)
	if err != nil {
		return "", err
	}
	config, last := withoutTermination(config)
	if last != nil {
		if err := p.s.mayName(last.Host); err != nil {
			return "", fail(err, "termination message")
		}
	}
	ctr := &container{pod: p, name: config.GetMetadata().GetName(), log: p.logPath(config), Stored: store.Stored{Container: store.Container{
		ID: store.NewID(), ImageID: img.ID, ImageRef: imageRef(img), Created: time.Now(),
		StopSignal: stopSignal(config, img), Termination: last,
	}}}
	spec, err := p.specify(ctr, config, img)
	if err != nil {
		return "", err
	}
	if err := p.sendVolumes(ctx, config); err != nil {
		return "", err
	}
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	if ctr.config, err = p.storeContainer(ctr, config, &rollback); err != nil {
		return "", err
	}
	fault.Point("container.recorded")
	// Pinned until the pod goes: its machine may keep the disk in a slot.
	for _, id := range append(volumes, img.ID) {
		if err := p.s.o.Images.Pin(ctx, id, p.id); err != nil {
			return "", err
		}
	}
	fault.Point("container.pinned")
	bundle, err := p.writeBundle(ctr.ID, spec, &rollback)
	if err != nil {
		return "", err
	}
	fault.Point("container.bundled")
	rollback.Push("task", func(ctx context.Context) error {
		c, err := p.live(ctx) // another one, if this one dies of it
		if err != nil {
			return nil //nolint:nilerr // the pod has ended, and all its tasks
		}
		return deleteTask(ctx, c, ctr.ID)
	})
	defer p.make(ctr)()
	if err := p.createTask(ctx, c, ctr, config, volumes, bundle); err != nil {
		return "", err
	}
	fault.Point("container.created")
	if err := p.show(ctr); err != nil {
		return "", err
	}
	p.s.events.emit(p, ctr.ID, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return ctr.ID, nil
}

// checkTarget refuses a container that is to see the processes of one that is
// not the pod's.
func (p *pod) checkTarget(config *runtimeapi.ContainerConfig) error {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetPid() == runtimeapi.NamespaceMode_TARGET && p.container(options.GetTargetId()) == nil {
		return errorf(codes.NotFound, "the pod has no container %q, whose processes are to be seen", options.GetTargetId())
	}
	return nil
}

// existing is the id of a container with that name and attempt which waits for
// its start.
func (p *pod) existing(meta *runtimeapi.ContainerMetadata) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.containers {
		have := c.config.GetMetadata()
		if have.GetName() != meta.GetName() || have.GetAttempt() != meta.GetAttempt() {
			continue
		}
		if c.state() == runtimeapi.ContainerState_CONTAINER_CREATED {
			return id, nil
		}
		return "", errorf(codes.AlreadyExists, "attempt %d has been started (%s)", meta.GetAttempt(), short(id))
	}
	return "", nil
}

// make has a shim that takes over from here on know the container, until made is
// called: the one that is asked for it may die before it can be seen.
func (p *pod) make(ctr *container) (made func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making[ctr.ID] = ctr
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.making, ctr.ID)
	}
}

// show lets the container be seen, unless the pod has been stopped meanwhile.
func (p *pod) show(ctr *container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return p.notReady()
	}
	p.containers[ctr.ID] = ctr
	return nil
}

// notReady is called with mu held.
func (p *pod) notReady() error {
	why := p.record.Exit
	if why == "" {
		why = string(p.record.Phase)
		if p.record.Phase == store.Ready {
			why = "its shim is being replaced"
			if p.stuck != nil {
				why = "its shim has died, and no other can be started: " + p.stuck.Error()
			}
		}
	}
	return errorf(codes.FailedPrecondition, "pod %s is not ready: %s", short(p.id), why)
}

// storeContainer writes the container's record and returns the configuration
// that is kept: without the environment and the command, which may hold secrets.
func (p *pod) storeContainer(ctr *container, config *runtimeapi.ContainerConfig, rollback *undo.Stack) (*runtimeapi.ContainerConfig, error) {
	kept := proto.CloneOf(config)
	kept.Envs, kept.Command, kept.Args = nil, nil, nil
	if last := ctr.Termination; last != nil {
		kept.Mounts = append(kept.Mounts, &runtimeapi.Mount{ContainerPath: last.Container, HostPath: last.Host})
	}
	raw, err := protojson.Marshal(kept)
	if err != nil {
		return nil, invalid("encode the configuration: %v", err)
	}
	ctr.Config = raw
	rollback.Push("record", func(context.Context) error { return p.s.store.DropContainer(p.id, ctr.ID) })
	return kept, p.s.store.PutContainer(p.id, &ctr.Container)
}

// writeBundle writes the container's bundle for the shim. The directory around
// it belongs to the pod's user: no link in it is followed.
func (p *pod) writeBundle(id string, spec any, rollback *undo.Stack) (string, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode the specification: %w", err)
	}
	root, err := os.OpenRoot(p.s.store.StateDir(p.id))
	if err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	defer root.Close()
	rollback.Push("bundle", func(context.Context) error { return p.dropBundle(id) })
	if err := root.Mkdir(id, 0o700); err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	name := filepath.Join(id, specFile)
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(raw); err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	if owner := p.snapshot().Owner; owner != nil {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return "", fmt.Errorf("write the bundle: %w", err)
		}
		if err := root.Lchown(id, owner.UID, owner.GID); err != nil {
			return "", fmt.Errorf("write the bundle: %w", err)
		}
	}
	return filepath.Join(p.s.store.StateDir(p.id), id), nil
}

func (p *pod) dropBundle(id string) error {
	root, err := os.OpenRoot(p.s.store.StateDir(p.id))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(id)
}

// createTask opens what the container needs and has the shim make it; volumes
// are the ids of the images that it mounts.
func (p *pod) createTask(ctx context.Context, c *conn, ctr *container, config *runtimeapi.ContainerConfig, volumes []string, bundle string) error {
	req := &taskv3.CreateTaskRequest{ID: ctr.ID, Bundle: bundle, Terminal: config.GetTty()}
	var parts []layout.Part
	for i, id := range append([]string{ctr.ImageID}, volumes...) {
		name := fmt.Sprintf("disk-%s-%d", ctr.ID, i)
		if err := p.sendDisk(ctx, c, name, id); err != nil {
			return err
		}
		parts = append(parts, layout.Part{Of: containerv1.Image{ID: id}, File: name})
	}
	req.Rootfs = layout.EncodeRootfs(parts)
	stdin := containerv1.NoStdin
	switch {
	case config.GetStdin() && config.GetStdinOnce():
		stdin = containerv1.StdinOnce
	case config.GetStdin():
		stdin = containerv1.OpenStdin
	}
	var stdio containerv1.Stdio = containerv1.Discard{Stdin: stdin}
	if ctr.log != "" {
		log, err := p.s.openLog(ctr.log)
		if err != nil {
			return err
		}
		defer log.Close()
		name := "log-" + ctr.ID
		if err := c.sendFile(ctx, name, log); err != nil {
			return fmt.Errorf("send the log: %w", err)
		}
		stdio = containerv1.Log{File: name, Stdin: stdin}
	}
	req.Stdin, req.Stdout, req.Stderr = containerv1.EncodeStdio(stdio)
	_, err := c.task.Create(ctx, req)
	return err
}

// sendDisk gives the shim an image's disk.
func (p *pod) sendDisk(ctx context.Context, c *conn, name, id string) error {
	disk, err := p.s.o.Images.OpenDisk(id)
	if err != nil {
		return err
	}
	defer disk.Close()
	if err := c.sendFile(ctx, name, disk); err != nil {
		return fmt.Errorf("send the image's disk: %w", err)
	}
	return nil
}

// imageVolumes are the ids of the images that a container mounts beside its
// own, which its mounts are made to name.
func (s *Service) imageVolumes(config *runtimeapi.ContainerConfig, own string) (ids []string, err error) {
	for _, mount := range config.GetMounts() {
		name := mount.GetImage().GetImage()
		if name == "" {
			continue
		}
		img, err := s.o.Images.Resolve(name)
		if err != nil {
			return nil, fmt.Errorf("volume at %s: %w", mount.GetContainerPath(), err)
		}
		mount.Image.Image = img.ID
		if img.ID != own && !slices.Contains(ids, img.ID) {
			ids = append(ids, img.ID)
		}
	}
	return ids, nil
}

// logPath is the container's log file, or empty for none.
func (p *pod) logPath(config *runtimeapi.ContainerConfig) string {
	if p.config.GetLogDirectory() == "" || config.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(p.config.GetLogDirectory(), config.GetLogPath())
}

// terminationAnnotation is the kubelet's, of a container.
const (
	terminationAnnotation = "io.kubernetes.container.terminationMessagePath"
	terminationDefault    = "/dev/termination-log"
)

// withoutTermination takes the termination message's mount out: the file is
// copied at the container's end instead.
func withoutTermination(config *runtimeapi.ContainerConfig) (*runtimeapi.ContainerConfig, *store.Termination) {
	path := config.GetAnnotations()[terminationAnnotation]
	if path == "" {
		path = terminationDefault
	}
	for i, m := range config.GetMounts() {
		if m.GetContainerPath() == path && m.GetHostPath() != "" {
			config.Mounts = slices.Delete(config.Mounts, i, i+1)
			return config, &store.Termination{Container: path, Host: m.GetHostPath()}
		}
	}
	return config, nil
}

func imageRef(img image.Image) string {
	if len(img.Digests) > 0 {
		return img.Digests[0]
	}
	return img.ID
}
