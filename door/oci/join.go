package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// known are the namespaces of a container's surrogate, by their names in /proc/PID/ns. The engine keeps them with the
// container, so that containers of every client and of every root find its VM.
type known map[string]string

// joinable are the namespaces that name a pod.
var joinable = []string{"net", "ipc", "pid", "uts"}

// knownOf returns the namespaces of a process, except those that it shares with this process.
func knownOf(pid int) known {
	k := known{}
	for _, name := range joinable {
		its, err := identify("/proc/" + strconv.Itoa(pid) + "/ns/" + name)
		if ours, _ := identify("/proc/self/ns/" + name); err == nil && its != ours {
			k[name] = its
		}
	}
	return k
}

// identify returns the identity of the namespace at a path.
func identify(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}

// ofProcess matches the path of a process's namespace.
var ofProcess = regexp.MustCompile(`^/proc/[0-9]+/(task/[0-9]+/)?ns/`)

// join returns the VM that a namespace of a new container belongs to, or nil.
func (c *creation) join(ctx context.Context, n convert.Namespaces) (*convert.Join, error) {
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	var found *convert.Join
	for _, one := range []struct {
		name string
		of   convert.Namespace
	}{{"net", n.Network}, {"ipc", n.IPC}, {"pid", n.PID}, {"uts", n.UTS}} {
		if one.of.Kind != convert.ByPath {
			continue
		}
		id, err := identify(one.of.Path)
		if err != nil {
			return nil, err
		}
		pod, container := owner(pods, one.name, id)
		if pod == nil {
			if one.name == "net" && ofProcess.MatchString(one.of.Path) {
				return nil, fmt.Errorf("linux.namespaces: the container of %s does not run in a VM", one.of.Path)
			}
			continue
		}
		if found == nil {
			found, c.joined = &convert.Join{SandboxID: pod.GetId()}, pod
		}
		vm := ownsVM(pod, container)
		switch path := agentv1.Namespace(container); {
		case one.name == "pid":
			found.PID = path
		case one.name == "ipc" && !vm:
			found.IPC = path
		case one.name == "uts" && !vm:
			found.UTS = path
		}
	}
	return found, nil
}

// pods returns the pods of this door.
func (c *creation) pods(ctx context.Context) (pods []*enginev1.Pod, err error) {
	err = c.door.ask(ctx, func(e enginev1.EngineClient) error {
		pods = nil
		all, err := e.List(ctx, &enginev1.ListRequest{Door: doorName})
		for err == nil {
			var next *enginev1.ListResponse
			if next, err = all.Recv(); next.GetPod().GetState() == enginev1.Pod_READY {
				pods = append(pods, next.GetPod())
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", plain(err))
	}
	return pods, nil
}

// ownsVM reports whether a container's IPC and UTS namespaces are the VM's. The pod itself has them, or the first container
// of a pod that began with a container.
func ownsVM(p *enginev1.Pod, container string) bool {
	return container == "" || len(p.GetRecord()) == 0 && p.GetContainers()[0].GetId() == container
}

// owner returns the pod and the container that a namespace belongs to. The container is empty for the pod's VM itself.
func owner(pods []*enginev1.Pod, name, id string) (*enginev1.Pod, string) {
	for _, p := range pods {
		if namespacesOf(p)[name] == id {
			return p, ""
		}
		for _, c := range p.GetContainers() {
			var k known
			if json.Unmarshal(c.GetRecord(), &k) == nil && k[name] == id {
				return p, c.GetId()
			}
		}
	}
	return nil, ""
}
