package bootstrap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// Demote makes the kernel's OOM killer prefer the process pid to containerd. The front inherits containerd's score, and
// gets the next higher one, as shims have.
func Demote(pid int) error {
	path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("set the OOM score: %w", err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("set the OOM score: read %s: %w", path, err)
	}
	if score >= 1000 {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(score+1)), 0); err != nil {
		return fmt.Errorf("set the OOM score: %w", err)
	}
	return nil
}

// JoinCgroup moves the process pid into a cgroup, named by its path from the top of the hierarchies. It is the runtime
// option shim_cgroup. The error says that no hierarchy has the group.
func JoinCgroup(pid int, path string) error {
	joined := false
	for _, top := range hostcgroup.Find("").Tops() {
		dir := filepath.Join(top, filepath.Join("/", path))
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("join cgroup %s: %w", path, err)
		}
		joined = true
	}
	if !joined {
		return fmt.Errorf("join cgroup %s: no such cgroup (create it, or remove the runtime option shim_cgroup)", path)
	}
	return nil
}
