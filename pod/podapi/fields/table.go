// Package fields defines the handling of each field of the API, in tables (table.go). A field that is not honoured is
// refused by name, never ignored. docs/pod-api.md is generated from the tables.
package fields

//go:generate go run ./gen ../../../docs/pod-api.md

// Status is Bulkhead's handling of a field.
type Status string

// The statuses.
const (
	// Honoured: the field works as in the Kubernetes API.
	Honoured Status = "honoured"
	// NoEffect: the field may be set and has no effect, by its nature.
	NoEffect Status = "no effect"
	// Never: the field is refused, because it makes no sense here.
	Never Status = "refused"
)

// Entry is the description of one field.
type Entry struct {
	Status Status
	// Values are the only accepted values. For a map they are keys, or "key=value". None means that all are accepted.
	Values []string
	// Note is the reason, or an alternative.
	Note string
}

func honoured(note ...string) Entry { return entry(Honoured, note) }
func noEffect(note ...string) Entry { return entry(NoEffect, note) }
func never(note ...string) Entry    { return entry(Never, note) }

func entry(status Status, note []string) Entry {
	e := Entry{Status: status}
	if len(note) > 0 {
		e.Note = note[0]
	}
	return e
}

func (e Entry) only(values ...string) Entry {
	e.Values = values
	return e
}

const (
	oneHost   = "there is one host and no scheduler"
	setByAPI  = "set by Bulkhead, as an API server would"
	noWindows = "pods are Linux VMs"
	noStorage = "the VM has no network storage"
	alphaUser = "alpha in the API; the files belong to root and fsGroup"
	noSELinux = "the guest loads no SELinux policy; the VM isolates the pod"

	otherResources = "the VM has no other resources for a pod"
)

// nodeLabels are the labels of the node that nodeSelector may name.
var nodeLabels = []string{"kubernetes.io/os=linux", "kubernetes.io/arch=amd64", "beta.kubernetes.io/os=linux",
	"beta.kubernetes.io/arch=amd64"}

// table has an entry for every field of a Pod, by the names of its type and of the field in YAML. Fields inside a field
// that is refused or has no effect need no entry.
var table = map[string]Entry{
	"TypeMeta.kind":       honoured(),
	"TypeMeta.apiVersion": honoured(),

	"Pod.metadata": honoured(),
	"Pod.spec":     honoured(),
	"Pod.status":   noEffect("Bulkhead reports the status itself"),

	"ObjectMeta.name":                       honoured(),
	"ObjectMeta.generateName":               honoured(),
	"ObjectMeta.namespace":                  honoured("part of the pod's name; it does not isolate pods"),
	"ObjectMeta.selfLink":                   noEffect(setByAPI),
	"ObjectMeta.uid":                        noEffect(setByAPI),
	"ObjectMeta.resourceVersion":            noEffect(setByAPI),
	"ObjectMeta.generation":                 noEffect(setByAPI),
	"ObjectMeta.creationTimestamp":          noEffect(setByAPI),
	"ObjectMeta.deletionTimestamp":          noEffect(setByAPI),
	"ObjectMeta.deletionGracePeriodSeconds": noEffect(setByAPI),
	"ObjectMeta.labels":                     honoured(),
	"ObjectMeta.annotations":                honoured("the prefix io.bulkhead.internal/ is reserved"),
	"ObjectMeta.ownerReferences":            noEffect("there are no other objects that could own a pod"),
	"ObjectMeta.finalizers":                 never("there are no controllers that could remove them"),
	"ObjectMeta.managedFields":              noEffect(setByAPI),

	"PodSpec.volumes":                       honoured(),
	"PodSpec.initContainers":                honoured("those with restartPolicy Always are sidecars"),
	"PodSpec.containers":                    honoured(),
	"PodSpec.ephemeralContainers":           never("the API adds them to running pods only: use bulkhead debug"),
	"PodSpec.restartPolicy":                 honoured(),
	"PodSpec.terminationGracePeriodSeconds": honoured(),
	"PodSpec.activeDeadlineSeconds":         honoured(),
	"PodSpec.dnsPolicy": never("without a cluster, ClusterFirst is the same as Default, and there is no "+
		"hostNetwork").only("ClusterFirst", "Default", "None"),
	"PodSpec.nodeSelector":                 never(oneHost).only(nodeLabels...),
	"PodSpec.serviceAccountName":           noEffect("without an API server there is no token to mount; fieldRef shows the name"),
	"PodSpec.serviceAccount":               noEffect("the former name of serviceAccountName"),
	"PodSpec.automountServiceAccountToken": noEffect("without an API server there is no token to mount"),
	"PodSpec.nodeName":                     never(oneHost),
	"PodSpec.hostNetwork":                  never("the pod is a VM of its own; publish ports instead"),
	"PodSpec.hostPID":                      never("the pod is a VM of its own"),
	"PodSpec.hostIPC":                      never("the pod is a VM of its own"),
	"PodSpec.shareProcessNamespace":        honoured(),
	"PodSpec.securityContext":              honoured(),
	"PodSpec.imagePullSecrets":             honoured("Secrets of the types dockerconfigjson and dockercfg, in the same files"),
	"PodSpec.hostname":                     honoured(),
	"PodSpec.subdomain":                    honoured("in the domain cluster.local; no DNS server resolves it"),
	"PodSpec.affinity":                     honoured("preferences are accepted without effect; requirements are refused"),
	"PodSpec.schedulerName":                noEffect(oneHost),
	"PodSpec.tolerations":                  noEffect("the host has no taints"),
	"PodSpec.hostAliases":                  honoured(),
	"PodSpec.priorityClassName":            noEffect("pods are never preempted or evicted"),
	"PodSpec.priority":                     noEffect("pods are never preempted or evicted"),
	"PodSpec.dnsConfig":                    honoured(),
	"PodSpec.readinessGates": honoured("a pod is not Ready until its conditions are set, and without a cluster no " +
		"controller sets them"),
	"PodSpec.runtimeClassName":   honoured().only("bulkhead"),
	"PodSpec.enableServiceLinks": noEffect("there are no services"),
	"PodSpec.preemptionPolicy":   noEffect("pods are never preempted or evicted"),
	"PodSpec.overhead": honoured("the cgroup limit of the VM beyond the pod's own resources, if it " +
		"is more than Bulkhead's figure"),
	"PodSpec.topologySpreadConstraints": noEffect("there is only one host"),
	"PodSpec.setHostnameAsFQDN":         honoured(),
	"PodSpec.os":                        honoured(),
	"PodSpec.hostUsers": honoured("with either value the pod's users belong to its own kernel; its root is not root " +
		"on the host"),
	"PodSpec.schedulingGates":        never(oneHost),
	"PodSpec.resourceClaims":         never("there are no resource drivers"),
	"PodSpec.resources":              honoured(),
	"PodSpec.hostnameOverride":       honoured(),
	"PodSpec.schedulingGroup":        never(oneHost),
	"PodSpec.evictionResponders":     never("pods are never evicted"),
	"PodReadinessGate.conditionType": honoured(),
	"Affinity.nodeAffinity":          honoured(),
	"Affinity.podAffinity":           honoured(),
	"Affinity.podAntiAffinity":       honoured(),

	"NodeAffinity.requiredDuringSchedulingIgnoredDuringExecution":     never(oneHost),
	"NodeAffinity.preferredDuringSchedulingIgnoredDuringExecution":    noEffect(oneHost),
	"PodAffinity.requiredDuringSchedulingIgnoredDuringExecution":      never(oneHost),
	"PodAffinity.preferredDuringSchedulingIgnoredDuringExecution":     noEffect(oneHost),
	"PodAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution":  never(oneHost),
	"PodAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution": noEffect(oneHost),

	"PodOS.name": never(noWindows).only("linux"),

	"PodSecurityContext.seLinuxOptions":           never(noSELinux),
	"PodSecurityContext.windowsOptions":           never(noWindows),
	"PodSecurityContext.runAsUser":                honoured(),
	"PodSecurityContext.runAsGroup":               honoured(),
	"PodSecurityContext.runAsNonRoot":             honoured(),
	"PodSecurityContext.supplementalGroups":       honoured(),
	"PodSecurityContext.supplementalGroupsPolicy": honoured(),
	"PodSecurityContext.fsGroup":                  honoured(),
	"PodSecurityContext.sysctls": honoured("namespaced ones, and sizes among the VM's vm.*, fs.* and " +
		"kernel.*; docs/security.md lists them"),
	"PodSecurityContext.fsGroupChangePolicy": noEffect("volumes behave as with OnRootMismatch"),
	"PodSecurityContext.seccompProfile":      honoured("the default is RuntimeDefault"),
	"PodSecurityContext.appArmorProfile":     honoured(),
	"PodSecurityContext.seLinuxChangePolicy": noEffect("there are no SELinux labels to change"),
	"Sysctl.name":                            honoured(),
	"Sysctl.value":                           honoured(),

	"Container.name":                     honoured(),
	"Container.image":                    honoured(),
	"Container.command":                  honoured(),
	"Container.args":                     honoured(),
	"Container.workingDir":               honoured(),
	"Container.ports":                    honoured(),
	"Container.envFrom":                  honoured(),
	"Container.env":                      honoured(),
	"Container.resources":                honoured(),
	"Container.resizePolicy":             honoured(),
	"Container.restartPolicy":            honoured("Always makes an init container a sidecar"),
	"Container.restartPolicyRules":       honoured(),
	"Container.volumeMounts":             honoured(),
	"Container.volumeDevices":            honoured("of claims whose volumeMode is Block, and hostPaths of type BlockDevice"),
	"Container.livenessProbe":            honoured(),
	"Container.readinessProbe":           honoured("more frequent until the container is ready for the first time"),
	"Container.startupProbe":             honoured("more frequent in the first period, when only a success counts"),
	"Container.lifecycle":                honoured(),
	"Container.terminationMessagePath":   honoured(),
	"Container.terminationMessagePolicy": honoured(),
	"Container.imagePullPolicy":          honoured("the default is Always for the tag latest, except for images of localhost"),
	"Container.securityContext":          honoured(),
	"Container.stdin":                    honoured(),
	"Container.stdinOnce":                honoured(),
	"Container.tty":                      honoured(),

	"ContainerRestartRule.action":              honoured().only("Restart"),
	"ContainerRestartRule.exitCodes":           honoured(),
	"ContainerRestartRuleOnExitCodes.operator": honoured(),
	"ContainerRestartRuleOnExitCodes.values":   honoured(),

	"Lifecycle.postStart":        honoured(),
	"Lifecycle.preStop":          honoured(),
	"Lifecycle.stopSignal":       honoured(),
	"LifecycleHandler.exec":      honoured(),
	"LifecycleHandler.httpGet":   honoured(),
	"LifecycleHandler.tcpSocket": honoured("opens a connection to the port"),
	"LifecycleHandler.sleep":     honoured(),
	"ExecAction.command":         honoured(),
	"HTTPGetAction.path":         honoured(),
	"HTTPGetAction.port":         honoured(),
	"HTTPGetAction.host":         honoured("sent in the request; the connection is to the pod"),
	"HTTPGetAction.scheme":       honoured(),
	"HTTPGetAction.httpHeaders":  honoured(),
	"HTTPGetAction.protocol":     honoured(),
	"HTTPHeader.name":            honoured(),
	"HTTPHeader.value":           honoured(),
	"TCPSocketAction.port":       honoured(),
	"TCPSocketAction.host":       noEffect("the connection is to the pod"),
	"SleepAction.seconds":        honoured(),

	"ProbeHandler.exec":                   honoured(),
	"ProbeHandler.httpGet":                honoured("asked within the pod's VM, so servers on its loopback answer too"),
	"ProbeHandler.tcpSocket":              honoured("connects within the pod's VM, so servers on its loopback answer too"),
	"ProbeHandler.grpc":                   honoured(),
	"GRPCAction.port":                     honoured(),
	"GRPCAction.service":                  honoured(),
	"GRPCAction.mode":                     honoured(),
	"Probe.initialDelaySeconds":           honoured(),
	"Probe.timeoutSeconds":                honoured(),
	"Probe.periodSeconds":                 honoured(),
	"Probe.successThreshold":              honoured(),
	"Probe.failureThreshold":              honoured(),
	"Probe.terminationGracePeriodSeconds": honoured(),

	"ContainerPort.name":          honoured(),
	"ContainerPort.hostPort":      honoured("published on the host, TCP and UDP"),
	"ContainerPort.containerPort": honoured(),
	"ContainerPort.protocol":      honoured(),
	"ContainerPort.hostIP":        honoured("the default is the host's loopback"),

	"EnvVar.name":                   honoured(),
	"EnvVar.value":                  honoured(),
	"EnvVar.valueFrom":              honoured(),
	"EnvVarSource.fieldRef":         honoured(),
	"EnvVarSource.resourceFieldRef": honoured("an unset limit is the size of the pod's VM"),
	"EnvVarSource.configMapKeyRef":  honoured(),
	"EnvVarSource.secretKeyRef":     honoured(),
	"EnvVarSource.fileKeyRef":       never("let the container's command read the file"),

	"ObjectFieldSelector.apiVersion": honoured().only("v1"),
	"ObjectFieldSelector.fieldPath":  honoured(),

	"ResourceFieldSelector.containerName": honoured(),
	"ResourceFieldSelector.resource":      honoured(),
	"ResourceFieldSelector.divisor":       honoured(),
	"ConfigMapKeySelector.key":            honoured(),
	"ConfigMapKeySelector.optional":       honoured(),
	"SecretKeySelector.key":               honoured(),
	"SecretKeySelector.optional":          honoured(),
	"LocalObjectReference.name":           honoured(),

	"EnvFromSource.prefix":        honoured(),
	"EnvFromSource.configMapRef":  honoured(),
	"EnvFromSource.secretRef":     honoured(),
	"ConfigMapEnvSource.optional": honoured(),
	"SecretEnvSource.optional":    honoured(),

	"ResourceRequirements.limits":   never(otherResources).only("cpu", "memory", "ephemeral-storage", "hugepages-2Mi"),
	"ResourceRequirements.requests": never(otherResources).only("cpu", "memory", "ephemeral-storage", "hugepages-2Mi"),
	"ResourceRequirements.claims":   never("there are no resource drivers"),

	"ContainerResizePolicy.resourceName":  honoured(),
	"ContainerResizePolicy.restartPolicy": honoured(),

	"VolumeMount.name":              honoured(),
	"VolumeMount.readOnly":          honoured(),
	"VolumeMount.recursiveReadOnly": honoured(),
	"VolumeMount.mountPath":         honoured(),
	"VolumeMount.subPath":           honoured(),
	"VolumeMount.mountPropagation":  never("no process outside a container mounts in its volumes").only("None", "HostToContainer"),
	"VolumeMount.subPathExpr":       honoured(),
	"VolumeMount.bindMountOptions":  honoured(),

	"SecurityContext.capabilities":             honoured(),
	"SecurityContext.privileged":               honoured("within the pod's own VM; docs/security.md lists its rights"),
	"SecurityContext.seLinuxOptions":           never(noSELinux),
	"SecurityContext.windowsOptions":           never(noWindows),
	"SecurityContext.runAsUser":                honoured(),
	"SecurityContext.runAsGroup":               honoured(),
	"SecurityContext.runAsNonRoot":             honoured(),
	"SecurityContext.readOnlyRootFilesystem":   honoured(),
	"SecurityContext.allowPrivilegeEscalation": honoured(),
	"SecurityContext.procMount":                honoured(),
	"SecurityContext.seccompProfile":           honoured("the default is RuntimeDefault"),
	"SecurityContext.appArmorProfile":          honoured(),
	"Capabilities.add":                         honoured(),
	"Capabilities.drop":                        honoured(),
	"SeccompProfile.type":                      honoured(),
	"SeccompProfile.localhostProfile":          honoured("a file below seccomp/ in Bulkhead's data directory"),
	"AppArmorProfile.type":                     never("the guest loads no AppArmor profile").only("Unconfined"),
	"AppArmorProfile.localhostProfile":         never("the guest loads no AppArmor profile"),
	"HostAlias.ip":                             honoured(),
	"HostAlias.hostnames":                      honoured(),
	"PodDNSConfig.nameservers":                 honoured(),
	"PodDNSConfig.searches":                    honoured(),
	"PodDNSConfig.options":                     honoured(),
	"PodDNSConfigOption.name":                  honoured(),
	"PodDNSConfigOption.value":                 honoured(),

	"Volume.name":                        honoured(),
	"VolumeSource.hostPath":              honoured("directories, files, and block devices (privileged): [volumes](volumes.md)"),
	"VolumeSource.emptyDir":              honoured("lives as long as the pod; in memory, as long as the pod's VM"),
	"VolumeSource.gcePersistentDisk":     never("removed from Kubernetes"),
	"VolumeSource.awsElasticBlockStore":  never("removed from Kubernetes"),
	"VolumeSource.gitRepo":               never("removed from Kubernetes"),
	"VolumeSource.secret":                honoured(),
	"VolumeSource.nfs":                   never(noStorage),
	"VolumeSource.iscsi":                 never(noStorage),
	"VolumeSource.glusterfs":             never("removed from Kubernetes"),
	"VolumeSource.persistentVolumeClaim": honoured("a volume on this host, which outlives the pod: [volumes](volumes.md)"),
	"VolumeSource.rbd":                   never("removed from Kubernetes"),
	"VolumeSource.flexVolume":            never("deprecated; there are no drivers"),
	"VolumeSource.cinder":                never("removed from Kubernetes"),
	"VolumeSource.cephfs":                never("removed from Kubernetes"),
	"VolumeSource.flocker":               never("removed from Kubernetes"),
	"VolumeSource.downwardAPI":           honoured(),
	"VolumeSource.fc":                    never(noStorage),
	"VolumeSource.azureFile":             never("removed from Kubernetes"),
	"VolumeSource.configMap":             honoured(),
	"VolumeSource.vsphereVolume":         never("removed from Kubernetes"),
	"VolumeSource.quobyte":               never("removed from Kubernetes"),
	"VolumeSource.azureDisk":             never("removed from Kubernetes"),
	"VolumeSource.photonPersistentDisk":  never("removed from Kubernetes"),
	"VolumeSource.projected":             honoured(),
	"VolumeSource.portworxVolume":        never("removed from Kubernetes"),
	"VolumeSource.scaleIO":               never("removed from Kubernetes"),
	"VolumeSource.storageos":             never("removed from Kubernetes"),
	"VolumeSource.csi":                   never("there are no storage drivers"),
	"VolumeSource.ephemeral":             never("use an emptyDir, which is on the pod's own disk"),
	"VolumeSource.image":                 honoured(),

	"PersistentVolumeClaimVolumeSource.claimName": honoured("a claim in the same files, or an existing volume, also with a name " +
		"that claims cannot have"),
	"PersistentVolumeClaimVolumeSource.readOnly": honoured(),
	"VolumeDevice.name":                          honoured(),
	"VolumeDevice.devicePath":                    honoured(),
	"HostPathVolumeSource.path":                  honoured("not Bulkhead's own directories, nor those of the host's kernel"),
	"HostPathVolumeSource.type":                  honoured("a socket or a character device is refused when it is mounted"),
	"ConfigMapVolumeSource.items":                honoured(),
	"ConfigMapVolumeSource.defaultMode":          honoured(),
	"ConfigMapVolumeSource.optional":             honoured(),
	"ConfigMapVolumeSource.defaultUser":          never(alphaUser),

	"SecretVolumeSource.secretName":  honoured(),
	"SecretVolumeSource.items":       honoured(),
	"SecretVolumeSource.defaultMode": honoured(),
	"SecretVolumeSource.optional":    honoured(),
	"SecretVolumeSource.defaultUser": never(alphaUser),

	"DownwardAPIVolumeSource.items":       honoured(),
	"DownwardAPIVolumeSource.defaultMode": honoured(),
	"DownwardAPIVolumeSource.defaultUser": never(alphaUser),

	"ProjectedVolumeSource.sources":     honoured(),
	"ProjectedVolumeSource.defaultMode": honoured(),
	"ProjectedVolumeSource.defaultUser": never(alphaUser),

	"VolumeProjection.secret":              honoured(),
	"VolumeProjection.downwardAPI":         honoured(),
	"VolumeProjection.configMap":           honoured(),
	"VolumeProjection.serviceAccountToken": never("without an API server there is no token"),
	"VolumeProjection.clusterTrustBundle":  never("without an API server there are no trust bundles"),
	"VolumeProjection.podCertificate":      never("without an API server there is no signer"),

	"SecretProjection.items":       honoured(),
	"SecretProjection.optional":    honoured(),
	"ConfigMapProjection.items":    honoured(),
	"ConfigMapProjection.optional": honoured(),
	"DownwardAPIProjection.items":  honoured(),

	"KeyToPath.key":  honoured(),
	"KeyToPath.path": honoured(),
	"KeyToPath.mode": honoured(),
	"KeyToPath.user": never(alphaUser),

	"DownwardAPIVolumeFile.path":             honoured(),
	"DownwardAPIVolumeFile.fieldRef":         honoured(),
	"DownwardAPIVolumeFile.resourceFieldRef": honoured("an unset limit is the size of the pod's VM"),
	"DownwardAPIVolumeFile.mode":             honoured(),
	"DownwardAPIVolumeFile.user":             never(alphaUser),

	"EmptyDirVolumeSource.medium":    never("the VM has no other medium").only("Memory", "HugePages", "HugePages-2Mi"),
	"EmptyDirVolumeSource.sizeLimit": honoured("a write beyond it fails; the pod is not evicted"),
	"EmptyDirVolumeSource.mode":      honoured(),

	"ImageVolumeSource.reference":  honoured(),
	"ImageVolumeSource.pullPolicy": honoured("the default is as for a container's image"),
}
