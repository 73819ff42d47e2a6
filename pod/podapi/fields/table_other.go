package fields

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// otherTypes are the objects other than pods, in the order of the document.
var otherTypes = []reflect.Type{
	reflect.TypeFor[corev1.ConfigMap](), reflect.TypeFor[corev1.Secret](), reflect.TypeFor[corev1.PersistentVolumeClaim](),
	reflect.TypeFor[appsv1.Deployment](), reflect.TypeFor[appsv1.ReplicaSet](), reflect.TypeFor[appsv1.StatefulSet](),
	reflect.TypeFor[appsv1.DaemonSet](), reflect.TypeFor[batchv1.Job](),
}

const (
	oneTemplate = "the pods are always made from the template"
	noRollout   = "there are no rollouts"
	noRecord    = "the status is not stored"

	claimIsVolume = "there are no PersistentVolumes to choose from: a claim creates its volume"
	noSource      = "a volume begins empty"
)

// otherTable is the table of the objects other than pods.
var otherTable = map[string]Entry{
	"ConfigMap.metadata":   honoured(),
	"ConfigMap.immutable":  honoured("bulkhead update refuses changes"),
	"ConfigMap.data":       honoured(),
	"ConfigMap.binaryData": honoured(),

	"Secret.metadata":   honoured(),
	"Secret.immutable":  honoured("bulkhead update refuses changes"),
	"Secret.data":       honoured(),
	"Secret.stringData": honoured(),
	"Secret.type":       honoured("determines the required keys"),

	"PersistentVolumeClaim.metadata": honoured(),
	"PersistentVolumeClaim.spec": honoured("the volume's name is NAME in the namespace default, in others NAMESPACE_NAME; only " +
		"bulkhead volume rm and prune remove it"),
	"PersistentVolumeClaim.status": noEffect(noRecord),

	"PersistentVolumeClaimSpec.accessModes": honoured("a shared directory for ReadWriteMany or ReadOnlyMany, else a disk, which one " +
		"pod at a time can use"),
	"PersistentVolumeClaimSpec.selector":                  never(claimIsVolume),
	"PersistentVolumeClaimSpec.resources":                 honoured(),
	"PersistentVolumeClaimSpec.volumeName":                never(claimIsVolume),
	"PersistentVolumeClaimSpec.storageClassName":          noEffect("volumes are on this host"),
	"PersistentVolumeClaimSpec.volumeMode":                honoured("Block is a bare disk, for volumeDevices"),
	"PersistentVolumeClaimSpec.dataSource":                never(noSource),
	"PersistentVolumeClaimSpec.dataSourceRef":             never(noSource),
	"PersistentVolumeClaimSpec.volumeAttributesClassName": noEffect("volumes are on this host"),
	"VolumeResourceRequirements.limits":                   noEffect("a volume has the requested size"),
	"VolumeResourceRequirements.requests": honoured("not enforced for a shared directory; an existing volume may be larger, " +
		"and a smaller one grows").only("storage"),

	"Deployment.metadata": honoured(),
	"Deployment.spec":     honoured(),
	"Deployment.status":   noEffect(noRecord),

	"DeploymentSpec.replicas":                honoured("at most 100"),
	"DeploymentSpec.selector":                noEffect(oneTemplate),
	"DeploymentSpec.template":                honoured(),
	"DeploymentSpec.strategy":                noEffect(noRollout),
	"DeploymentSpec.minReadySeconds":         noEffect(noRollout),
	"DeploymentSpec.revisionHistoryLimit":    noEffect(noRollout),
	"DeploymentSpec.paused":                  noEffect(noRollout),
	"DeploymentSpec.progressDeadlineSeconds": noEffect(noRollout),

	"PodTemplateSpec.metadata": honoured("labels and annotations"),
	"PodTemplateSpec.spec":     honoured(),

	"ReplicaSet.metadata": honoured(),
	"ReplicaSet.spec":     honoured(),
	"ReplicaSet.status":   noEffect(noRecord),

	"ReplicaSetSpec.replicas":        honoured("at most 100"),
	"ReplicaSetSpec.minReadySeconds": noEffect(noRollout),
	"ReplicaSetSpec.selector":        noEffect(oneTemplate),
	"ReplicaSetSpec.template":        honoured(),

	"StatefulSet.metadata": honoured(),
	"StatefulSet.spec":     honoured(),
	"StatefulSet.status":   noEffect(noRecord),

	"StatefulSetSpec.replicas":                             honoured("at most 100"),
	"StatefulSetSpec.selector":                             noEffect(oneTemplate),
	"StatefulSetSpec.template":                             honoured(),
	"StatefulSetSpec.volumeClaimTemplates":                 honoured("claims TEMPLATE-POD, which stay when the pods are removed"),
	"StatefulSetSpec.serviceName":                          noEffect("there are no services"),
	"StatefulSetSpec.podManagementPolicy":                  noEffect("the pods start in parallel"),
	"StatefulSetSpec.updateStrategy":                       noEffect(noRollout),
	"StatefulSetSpec.revisionHistoryLimit":                 noEffect(noRollout),
	"StatefulSetSpec.minReadySeconds":                      noEffect(noRollout),
	"StatefulSetSpec.persistentVolumeClaimRetentionPolicy": honoured(),
	"StatefulSetSpec.ordinals":                             honoured(),
	"StatefulSetPersistentVolumeClaimRetentionPolicy.whenDeleted": never("only bulkhead volume rm and prune remove volumes").
		only("Retain"),
	"StatefulSetPersistentVolumeClaimRetentionPolicy.whenScaled": noEffect("there is no scaling"),
	"StatefulSetOrdinals.start":                                  honoured(),

	"DaemonSet.metadata": honoured(),
	"DaemonSet.spec":     honoured("one pod, as there is one host"),
	"DaemonSet.status":   noEffect(noRecord),

	"DaemonSetSpec.selector":             noEffect(oneTemplate),
	"DaemonSetSpec.template":             honoured(),
	"DaemonSetSpec.updateStrategy":       noEffect(noRollout),
	"DaemonSetSpec.minReadySeconds":      noEffect(noRollout),
	"DaemonSetSpec.revisionHistoryLimit": noEffect(noRollout),

	"Job.metadata": honoured(),
	"Job.spec":     honoured("the job ends with its pods"),
	"Job.status":   noEffect(noRecord),

	"JobSpec.parallelism":             honoured("the number of pods that run at a time, not 0; the others wait for their turn"),
	"JobSpec.completions":             honoured("the number of pods, at most 100, which start in the order of their numbers"),
	"JobSpec.activeDeadlineSeconds":   honoured("from the Job's start, even for a pod that waits for its turn"),
	"JobSpec.podFailurePolicy":        never(onePod),
	"JobSpec.successPolicy":           never(onePod),
	"JobSpec.backoffLimit":            honoured("for each pod; with either restartPolicy a failed container is restarted in its pod"),
	"JobSpec.backoffLimitPerIndex":    never(onePod),
	"JobSpec.maxFailedIndexes":        never(onePod),
	"JobSpec.selector":                noEffect(oneTemplate),
	"JobSpec.manualSelector":          noEffect(oneTemplate),
	"JobSpec.template":                honoured(),
	"JobSpec.ttlSecondsAfterFinished": noEffect("the pod stays until it is removed; bulkhead run --rm removes it at its end"),
	"JobSpec.completionMode":          honoured().only("NonIndexed", "Indexed"),
	"JobSpec.suspend":                 never("a job starts immediately").only("false"),
	"JobSpec.podReplacementPolicy":    noEffect("no pod is replaced"),
	"JobSpec.managedBy":               noEffect("there are no controllers"),
	"JobSpec.scheduling":              never(oneHost),
}

const onePod = "failed pods are not replaced"
