package clients

// gaps are the scenarios that bulkhead-oci does not pass yet:
//
//   - network of a container, pod of three: passed by hand, but not always;
//   - limits: a memory limit of docker's does not end its container with its events;
//   - privileged: the VM's own disks are visible;
//   - network: ctr's namespaces of networks.
var gaps = []string{
	"network of a container", "pod of three", "limits", "privileged", "network",
}
