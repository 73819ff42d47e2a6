package hostcgroup

// Place is the directory at which a hierarchy is mounted, and this process's group in it
// as a path below that: the hierarchy of one of the older controllers, or cgroup2 by "".
func Place(controller string) (mount, own string, ok bool) {
	all, err := system.hierarchies()
	h, ok := all[controller]
	return h.mount, h.own, ok && err == nil
}
