package engine

import "strings"

// doorPrefix begins the keys of pods that a door in another process has asked for. No
// Kubernetes namespace, with which other keys begin, has a colon.
const doorPrefix = "door:"

// DoorKey is the key of the pod that a door in another process calls key. A door's
// name has no slash.
func DoorKey(door, key string) string { return doorPrefix + door + "/" + key }

// Door is the name of the door in another process that has asked for the pod, and the
// key that it calls the pod by. Both are empty for a pod of the engine's own process.
func (p *Pod) Door() (door, key string) {
	rest, ok := strings.CutPrefix(p.Key, doorPrefix)
	if !ok {
		return "", ""
	}
	door, key, _ = strings.Cut(rest, "/")
	return door, key
}
