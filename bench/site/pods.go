package site

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/bench/procs"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// restPatience bounds the wait for machines to come to rest.
const restPatience = 30 * time.Second

// Manifest is a pod of one container that runs a command.
func Manifest(name, image string, command ...string) string {
	args, _ := json.Marshal(command) // strings always can
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %q, command: %s}]
`, name, image, args)
}

// WithScratch is the same with a directory of the scratch disk.
func WithScratch(name, image, path string, command ...string) string {
	m := Manifest(name, image, command...)
	m = strings.Replace(m, "}]\n", fmt.Sprintf(", volumeMounts: [{name: scratch, mountPath: %q}]}]\n", path), 1)
	return m + "  volumes: [{name: scratch, emptyDir: {}}]\n"
}

// Write puts manifests into a file of the site and returns its path.
func (s *Site) Write(name string, manifests ...string) (string, error) {
	path := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(path, []byte(strings.Join(manifests, "")), 0o600); err != nil {
		return "", fmt.Errorf("write manifest %s: %w", name, err)
	}
	return path, nil
}

// Start starts the pods of a file in the background: all of them or, with an
// error, none.
func (s *Site) Start(ctx context.Context, file string) (Result, error) {
	r, err := s.Run(ctx, "run", "-d", "--quiet", file)
	if err != nil {
		return r, err
	}
	for name := range strings.Lines(r.Out) {
		s.pods[strings.TrimSpace(name)] = true
	}
	return r, nil
}

// Remove ends and removes pods by name.
func (s *Site) Remove(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := s.Run(ctx, append([]string{"rm", "-f"}, names...)...)
	if err != nil {
		return err
	}
	for _, name := range names {
		delete(s.pods, name)
	}
	return nil
}

// Pods are the pods by name.
func (s *Site) Pods(ctx context.Context) (map[string]api.Pod, error) {
	var list []api.Pod
	if err := s.JSON(ctx, &list, "ps"); err != nil {
		return nil, err
	}
	pods := map[string]api.Pod{}
	for _, p := range list {
		pods[p.Name] = p
	}
	return pods, nil
}

// Settle waits until the site's pods and its pool are there and every process of
// the benchmark is at rest. What has not come to rest in time is returned as a
// note; the error is ctx's.
func (s *Site) Settle(ctx context.Context) (note string, err error) {
	limit := restPatience
	if s.restless > 1 {
		limit /= 6 // it will hardly be better the next time
	}
	rest, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = procs.Rest(rest, func(all []procs.Process) error {
		if got, want := len(s.machines(all)), len(s.pods)+s.pool; got < want {
			return fmt.Errorf("%d of %d machines are there", got, want)
		}
		return nil
	})
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		s.restless++
		return "the machine did not " + strings.ReplaceAll(err.Error(), context.DeadlineExceeded.Error(), "in "+limit.String()), nil
	}
	s.restless = 0
	return "", nil
}

// Machine is one pod's processes.
type Machine struct {
	Sandbox string // id
	Shim    procs.Process
	QEMU    procs.Process
}

// Machines are those of the site, the pool's included, by sandbox id.
func (s *Site) Machines() (map[string]Machine, error) {
	all, err := procs.Below(procs.Root())
	if err != nil {
		return nil, err
	}
	return s.machines(all), nil
}

// machines finds the shims below the site's engine, and what runs below each.
func (s *Site) machines(all []procs.Process) map[string]Machine {
	own := map[int]bool{}
	shims := map[int]Machine{}
	found := map[string]Machine{}
	for _, p := range all { // parents come first
		if own[p.Parent] {
			own[p.PID] = true
		}
		if p.Zombie {
			continue
		}
		if args := procs.Args(p.PID); own[p.PID] && len(args) == 3 && strings.HasSuffix(args[0], "bulkhead-shim") {
			shims[p.PID] = Machine{Sandbox: args[2], Shim: p}
		} else if m, ok := shims[p.Parent]; ok && strings.HasPrefix(p.Name, "qemu") {
			m.QEMU = p
			found[m.Sandbox] = m
		} else if s.isEngine(p) {
			own[p.PID] = true
		}
	}
	return found
}

// Names are base1 … baseN.
func Names(base string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, base+strconv.Itoa(i+1))
	}
	return names
}
