package site

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Manifest returns a pod of one container that runs a command.
func Manifest(name, image string, command ...string) string {
	args, _ := json.Marshal(command) // strings never fail
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

// WithScratch is Manifest with a directory on the scratch disk.
func WithScratch(name, image, path string, command ...string) string {
	m := Manifest(name, image, command...)
	m = strings.Replace(m, "}]\n", fmt.Sprintf(", volumeMounts: [{name: scratch, mountPath: %q}]}]\n", path), 1)
	return m + "  volumes: [{name: scratch, emptyDir: {}}]\n"
}

// WithHostPath is Manifest with a directory of the host at /data, which is created if it is missing. The container
// is privileged, so that it can empty its guest's caches.
func WithHostPath(name, image, path string, command ...string) string {
	m := Manifest(name, image, command...)
	m = strings.Replace(m, "}]\n", ", securityContext: {privileged: true}, volumeMounts: [{name: data, mountPath: /data}]}]\n", 1)
	return m + fmt.Sprintf("  volumes: [{name: data, hostPath: {path: %q, type: DirectoryOrCreate}}]\n", path)
}

// Write writes manifests into a file of the site and returns its path.
func (s *Site) Write(name string, manifests ...string) (string, error) {
	path := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(path, []byte(strings.Join(manifests, "")), 0o600); err != nil {
		return "", fmt.Errorf("write manifest %s: %w", name, err)
	}
	return path, nil
}

// Start starts the pods of a file in the background: all of them, or none if there is an error.
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

// Remove stops and removes pods by name.
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

// Pods returns the site's pods by name.
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

// Names returns base1 … baseN.
func Names(base string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, base+strconv.Itoa(i+1))
	}
	return names
}
