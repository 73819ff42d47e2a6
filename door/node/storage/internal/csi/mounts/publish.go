package mounts

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the pod's data in a driver's volume context.
const (
	podName        = "csi.storage.k8s.io/pod.name"
	podNamespace   = "csi.storage.k8s.io/pod.namespace"
	podUID         = "csi.storage.k8s.io/pod.uid"
	serviceAccount = "csi.storage.k8s.io/serviceAccount.name"
	ephemeral      = "csi.storage.k8s.io/ephemeral"
	serviceTokens  = "csi.storage.k8s.io/serviceAccount.tokens"
)

// maxSecret limits the data of one Secret for a driver, in bytes.
const maxSecret = 1 << 20

// request returns the request to publish the volume.
func (a *attempt) request(ctx context.Context) (*csi.NodePublishVolumeRequest, error) {
	r := a.r
	out := &csi.NodePublishVolumeRequest{
		VolumeId: r.Handle, PublishContext: a.public, TargetPath: r.targetPath(), VolumeCapability: a.capability(), Readonly: r.ReadOnly,
		VolumeContext: maps.Clone(r.Attributes),
	}
	if a.driver.Facts.Stage && !r.Inline {
		out.StagingTargetPath = r.stagePath()
	}
	if out.VolumeContext == nil {
		out.VolumeContext = map[string]string{}
	}
	if a.rules.PodInfoOnMount != nil && *a.rules.PodInfoOnMount {
		maps.Copy(out.VolumeContext, map[string]string{
			podName: r.Pod, podNamespace: r.Namespace, podUID: string(r.UID), serviceAccount: r.ServiceAccount,
			ephemeral: strconv.FormatBool(r.Inline),
		})
	}
	var err error
	if out.Secrets, err = a.m.secrets(ctx, r.PublishSecret); err != nil {
		return nil, err
	}
	tokens, err := a.serviceTokens(ctx)
	switch {
	case err != nil:
		return nil, err
	case tokens == "":
	case a.rules.ServiceAccountTokenInSecrets != nil && *a.rules.ServiceAccountTokenInSecrets:
		out.Secrets[serviceTokens] = tokens
	default:
		out.VolumeContext[serviceTokens] = tokens
	}
	return out, nil
}

// capability returns how the pod uses the volume: as a device or a directory, and its access mode.
func (a *attempt) capability() *csi.VolumeCapability {
	r := a.r
	out := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(r.Access, a.driver.Facts.ManyWriters)}}
	if r.Block {
		out.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return out
	}
	mount := &csi.VolumeCapability_MountVolume{FsType: r.FSType, MountFlags: slices.Clone(r.Options)}
	if a.driver.Facts.Group && r.Group != nil {
		mount.VolumeMountGroup = strconv.FormatInt(*r.Group, 10)
	}
	out.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	return out
}

// accessMode converts an access mode of the API to the driver's.
func accessMode(mode corev1.PersistentVolumeAccessMode, many bool) csi.VolumeCapability_AccessMode_Mode {
	switch {
	case mode == corev1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == corev1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOnce && many:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOncePod && many:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == corev1.ReadWriteOnce, mode == corev1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return csi.VolumeCapability_AccessMode_UNKNOWN
}

// secrets returns the data of a Secret; the map is never nil. A node may get the Secrets that its pods' volumes name.
func (m *Mounter) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	out := map[string]string{}
	if ref == nil {
		return out, nil
	}
	got, err := m.o.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetching the volume's Secret %s/%s failed: %w", ref.Namespace, ref.Name, err)
	}
	size := 0
	for k, v := range got.Data {
		if size += len(k) + len(v); size > maxSecret {
			return nil, fmt.Errorf("the volume's Secret %s/%s has more than %d bytes", ref.Namespace, ref.Name, maxSecret)
		}
		out[k] = string(v)
	}
	return out, nil
}

// serviceTokens returns the tokens that the driver requests, as JSON, or an empty string.
func (a *attempt) serviceTokens(ctx context.Context) (string, error) {
	if len(a.rules.TokenRequests) == 0 || a.r.Block {
		return "", nil
	}
	out := map[string]authenticationv1.TokenRequestStatus{}
	for _, one := range a.rules.TokenRequests {
		got, err := a.m.tokens.get(ctx, a.r, one)
		if err != nil {
			return "", err
		}
		out[one.Audience] = authenticationv1.TokenRequestStatus{
			Token: string(got.Text), ExpirationTimestamp: metav1.NewTime(got.Expires),
		}
	}
	text, err := json.Marshal(out)
	return string(text), err
}

// republishes reports whether the driver wants its published volumes to be published again periodically.
func republishes(rules storagev1.CSIDriverSpec) bool {
	return rules.RequiresRepublish != nil && *rules.RequiresRepublish
}
