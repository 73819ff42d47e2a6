package clients

// gaps are the scenarios that bulkhead-oci does not pass yet:
//
//   - network of a container, pod of three: passed by hand, but not always;
//   - limits: a memory limit of docker's does not end its container with its events;
//   - privileged: the VM's own disks are visible;
//   - names of services, network: docker's name server at 127.0.0.11, and ctr's namespaces of networks.
var gaps = []string{
	"network of a container", "pod of three", "limits", "privileged", "names of services", "network",
}
