package hostcgroup

// Place returns the mount point of a hierarchy, and this process's group as a path below it: of an older controller's
// hierarchy, or of cgroup2 with "".
func Place(controller string) (mount, own string, ok bool) {
	all, err := system.hierarchies()
	h, ok := all[controller]
	return h.mount, h.own, ok && err == nil
}
