# python docs/generate_stubs.py writes this file, from the operations' fields.
# ruff: noqa: E501
from typing import Literal, SupportsIndex, overload

from ..dialect.tensor import Tensor
from ..expr import Size
from . import enums
from .argument_types import (
    Activation,
    AttentionImplementation,
    ConvolutionMode,
    DataType,
    DiagonalAlignment,
    Dropout,
    Fractions,
    GroupedMatmulMode,
    Inference,
    Integers,
    MaxPool,
    NormPhase,
    Operand,
    PaddingMode,
    PeerMode,
    ReductionMode,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
    ScoreModification,
    Sizes,
    Slices,
    SoftmaxAlgorithm,
    Spatial,
    Tensors,
    Training,
)
from .graph_tensor import GraphTensor

class Operations:
    """A method for each operation that a graph may have."""
    def matmul(
        self, A: Tensor, B: Tensor, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """C = A @ B over the last two dims; the leading dims are batches and broadcast.

        A [..., M, K], B [..., K, N], C [..., M, N].  An operand of fewer dims has batch dims of 1 ahead
        of its own.  Where a batch dim of A or B divides C's, as many
        matrices of C that follow each other share one of its own: matrix b of C takes b // (C / own),
        as the query heads of grouped attention share those of keys.  Engines see such a product as one
        of more batch dims, between reshapes.  Products are summed in the compute type.
        FLOAT: the sums are f32.  FAST_FLOAT_FOR_FP8: they may stay in the tensor cores' accumulators,
        which keep fewer bits; the exact result is that of FLOAT.
        Source: cuDNN graph API, Matmul operation.

        Arguments:
            A: [..., M, K]
            B: [..., K, N]
            compute_data_type: the type of the sums; default: the graph's
            name: a label; results are named after it

        Returns:
            [..., M, N]
        """
    def moe_grouped_matmul(
        self,
        token: Tensor,
        weight: Tensor,
        first_token_offset: Tensor,
        token_index: Tensor | None = None,
        token_ks: Tensor | None = None,
        mode: GroupedMatmulMode = "NONE",
        top_k: SupportsIndex = 0,
        top_k_scores: Tensor | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Each row of token times the weights of the expert that the row belongs to.

        token [1, T, K], weight [E, K, N], first_token_offset [E, 1, 1], output [1, T, N].  The rows
        of expert e are first_token_offset[e] up to that of the next expert, or to T for the last.
        The offsets are on the device: the first is 0, they ascend, and an expert may have no rows;
        what other offsets give is undefined.  Products are summed in the compute type.
        Source: cuDNN graph API, MoeGroupedMatmul operation, and the documentation of cudnn-frontend's
        moe_grouped_matmul, whose first_token_offset is [B * E, 1, 1]; here B is 1.

        Arguments:
            token: [1, T, K], the rows of each expert together
            weight: [E, K, N]
            first_token_offset: [E, 1, 1], the first row of each expert
            token_index: [1, T, 1], of the modes GATHER, SCATTER; optional
            token_ks: [1, T, 1], of the mode SCATTER; optional
            mode: how rows are routed to experts; default NONE
            top_k: experts of a token, of the mode SCATTER; default 0
            top_k_scores: [1, T, k], of the mode COMBINE; optional
            compute_data_type: the type of the sums; default: the graph's
            name: a label; results are named after it

        Returns:
            [1, T, N]
        """
    @overload
    def reduction(
        self,
        input: Tensor,
        mode: ReductionMode,
        compute_data_type: DataType | None = None,
        name: str = "",
        generate_index: Literal[False] = False,
    ) -> GraphTensor:
        """Y = mode over the axes where Y has dim 1.

        X [d0, ..., dn], Y the same dims or 1.  Elements are converted to the compute type.
        NaN anywhere in a min, max or amax gives NaN.
        Index, Y's dims, of min, max and amax: the place of the first of the elements, converted, that
        are equal to the result, of the first NaN if there is one; counted row-major over the axes that
        are reduced, in their order, from 0 (CUDNN_REDUCE_TENSOR_FLATTENED_INDICES).
        Source: cuDNN graph API, Reduction operation; modes: `cudnnReduceTensorOp_t`; index:
        cuDNN API reference, cudnnReduceTensor and cudnnReduceTensorIndices_t.

        Arguments:
            input: [d0, ..., dn]
            mode: what is computed
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it
            generate_index: whether there is an index, of min, max and amax; default False

        Returns:
            y: [d0 or 1, ..., dn or 1]
            index: [d0 or 1, ..., dn or 1]; may be None
        """
    @overload
    def reduction(
        self,
        input: Tensor,
        mode: ReductionMode,
        compute_data_type: DataType | None = None,
        name: str = "",
        *,
        generate_index: Literal[True],
    ) -> tuple[GraphTensor, GraphTensor]: ...
    @overload
    def reduction(
        self,
        input: Tensor,
        mode: ReductionMode,
        compute_data_type: DataType | None = None,
        name: str = "",
        generate_index: bool = False,
    ) -> GraphTensor | tuple[GraphTensor, GraphTensor]: ...
    def transpose(
        self,
        input: Tensor,
        permutation: Integers,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y's axis i is X's axis permutation[i].

        X [d0, ..., dn], Y [d_permutation[0], ..., d_permutation[n]].
        Source: cuDNN graph API, Transpose operation.

        Arguments:
            input: the input
            permutation: X's axis of each axis of Y
            compute_data_type: accepted; nothing is computed
            name: a label; results are named after it

        Returns:
            the result
        """
    def slice(
        self,
        input: Tensor,
        slices: Slices = (),
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y[i] = X[start + step * i] along every axis.

        X [d0, ..., dn], Y [(stop0 - start0) / step0 rounded up, ...].
        starts, stops, steps: in elements, one an axis.
        Source: cuDNN graph API, Slice operation.

        Arguments:
            input: the input
            slices: a Python slice for each axis; what is left out is taken whole
            compute_data_type: accepted; nothing is computed
            name: a label; results are named after it

        Returns:
            the result
        """
    def reshape(
        self,
        input: Tensor,
        reshape_mode: ReshapeMode = "VIEW_ONLY",
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y holds X's elements under other dims.

        X [d0, ..., dn], Y [e0, ..., em] of as many elements.
        VIEW_ONLY keeps each element's place in memory (X and Y are packed, in any order of their
        axes); LOGICAL keeps the order in which indices count up, whatever the strides.
        Source: cuDNN graph API, Reshape operation.

        Arguments:
            input: the input
            reshape_mode: what keeps its order; default VIEW_ONLY
            compute_data_type: accepted; nothing is computed
            name: a label; results are named after it

        Returns:
            the result
        """
    def concatenate(
        self,
        inputs: Tensors,
        axis: SupportsIndex,
        in_place_index: SupportsIndex | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y is the inputs one after the other along an axis.

        Inputs [d0, ..., ck, ..., dn], Y [d0, ..., c0 + c1 + ..., ..., dn].
        in_place_index: the input whose buffer Y would be part of; not supported.
        Source: cuDNN graph API, Concatenate operation.

        Arguments:
            inputs: [d0, ..., ck, ..., dn]
            axis: the axis that grows
            in_place_index: the input that Y's buffer already holds; optional
            name: a label; results are named after it

        Returns:
            [d0, ..., c0 + c1 + ..., ..., dn]
        """
    def broadcast(self, input: Tensor, dim: Sizes, name: str = "") -> GraphTensor:
        """Y repeats X along each axis where X has dim 1, or no dim.

        X [d0 or 1, ..., dn or 1], Y [..., d0, ..., dn]: the last dims stand below each other, as in
        NumPy.  Engines see the pointwise operation identity, or X itself as the operand of pointwise
        operations whose other operands have Y's dims.
        Source: NumPy's broadcast_to, StableHLO's broadcast_in_dim; cuDNN has no such operation.

        Arguments:
            input: the input
            dim: dims of the result
            name: a label; results are named after it

        Returns:
            the result
        """
    def conv_fprop(
        self,
        image: Tensor,
        weight: Tensor,
        padding: Spatial | None = None,
        stride: Spatial | None = None,
        dilation: Spatial | None = None,
        convolution_mode: ConvolutionMode = "CROSS_CORRELATION",
        compute_data_type: DataType | None = None,
        name: str = "",
        pre_padding: Spatial | None = None,
        post_padding: Spatial | None = None,
    ) -> GraphTensor:
        """Y = X convolved with W, in one to three spatial dims.

        X [N, C, (D, H,) W], W [K, C / groups, (T, R,) S], Y [N, K, (O, P,) Q].
        pre_padding, post_padding, stride, dilation: in elements, one a spatial dim.
        Q = (W + pre + post - dilation * (S - 1) - 1) // stride + 1.  The number of groups is C over
        W's second dim.  CROSS_CORRELATION applies the filter as it is, CONVOLUTION flipped.
        Source: cuDNN graph API, ConvolutionFwd operation.

        Arguments:
            image: [N, C, (D, H,) W]
            weight: [K, C / groups, (T, R,) S]
            padding: elements before and after each spatial dim; default 0
            stride: steps of the filter in each spatial dim; default 1
            dilation: distance of the filter's elements; default 1
            convolution_mode: which way the filter runs; default CROSS_CORRELATION
            compute_data_type: the type of the sums; default: the graph's
            name: a label; results are named after it
            pre_padding: elements before each spatial dim, if padding is not given
            post_padding: elements after each spatial dim, if padding is not given

        Returns:
            [N, K, (O, P,) Q]
        """
    def conv_dgrad(
        self,
        loss: Tensor,
        filter: Tensor,
        padding: Spatial | None = None,
        stride: Spatial | None = None,
        dilation: Spatial | None = None,
        convolution_mode: ConvolutionMode = "CROSS_CORRELATION",
        compute_data_type: DataType | None = None,
        name: str = "",
        pre_padding: Spatial | None = None,
        post_padding: Spatial | None = None,
    ) -> GraphTensor:
        """DX = the gradient of a convolution's image, from its filter W and its result's gradient DY.

        DY [N, K, (O, P,) Q], W [K, C / groups, (T, R,) S], DX [N, C, (D, H,) W].
        The parameters are those of the forward convolution, and DX's dims are X's there: set them by
        set_dim, since a stride leaves several possible.  Each pixel of DX is the sum, over all taps and
        all filters of its group, of W times DY at the output whose window has the tap on that pixel.
        DY outside its dims is zeros, which are multiplied: an infinite W gives NaN there.
        Source: cuDNN graph API, ConvolutionBwdData operation.

        Arguments:
            loss: [N, K, (O, P,) Q]
            filter: [K, C / groups, (T, R,) S]
            padding: elements before and after each spatial dim; default 0
            stride: steps of the filter in each spatial dim; default 1
            dilation: distance of the filter's elements; default 1
            convolution_mode: which way the filter runs; default CROSS_CORRELATION
            compute_data_type: the type of the sums; default: the graph's
            name: a label; results are named after it
            pre_padding: elements before each spatial dim, if padding is not given
            post_padding: elements after each spatial dim, if padding is not given

        Returns:
            [N, C, (D, H,) W]
        """
    def conv_wgrad(
        self,
        image: Tensor,
        loss: Tensor,
        padding: Spatial | None = None,
        stride: Spatial | None = None,
        dilation: Spatial | None = None,
        convolution_mode: ConvolutionMode = "CROSS_CORRELATION",
        compute_data_type: DataType | None = None,
        name: str = "",
        pre_padding: Spatial | None = None,
        post_padding: Spatial | None = None,
    ) -> GraphTensor:
        """DW = the gradient of a convolution's filter, from its image X and its result's gradient DY.

        X [N, C, (D, H,) W], DY [N, K, (O, P,) Q], DW [K, C / groups, (T, R,) S].
        The parameters are those of the forward convolution, and DW's dims are W's there: set them by
        set_dim.  Each element of DW is the sum, over all images and all outputs, of DY times the pixel
        of X that the tap lies on.  X's padding is zeros, which are multiplied: an infinite DY gives NaN
        there.
        Source: cuDNN graph API, ConvolutionBwdFilter operation.

        Arguments:
            image: [N, C, (D, H,) W]
            loss: [N, K, (O, P,) Q]
            padding: elements before and after each spatial dim; default 0
            stride: steps of the filter in each spatial dim; default 1
            dilation: distance of the filter's elements; default 1
            convolution_mode: which way the filter runs; default CROSS_CORRELATION
            compute_data_type: the type of the sums; default: the graph's
            name: a label; results are named after it
            pre_padding: elements before each spatial dim, if padding is not given
            post_padding: elements after each spatial dim, if padding is not given

        Returns:
            [K, C / groups, (T, R,) S]
        """
    def causal_conv1d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        initial_states: Tensor | None = None,
        activation: Activation = "identity",
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y = activation(sum of W[d, i] * X[b, d, t - (W - 1) + i] over i + bias[d]): depthwise.

        X, Y [B, D, T], W [D, W], bias [D].  An element of Y has the elements of X up to its own place,
        in its own channel.  Ahead of the first are zeros, or initial_states [B, D, W - 1].
        The activation silu is z * sigmoid(z).  The states after X are the last W - 1 elements of the
        initial states and X: a `slice`.
        Source: cudnn-frontend, causal_conv1d.

        Arguments:
            x: [B, D, T]
            weight: [D, W]
            bias: [D]; optional
            initial_states: [B, D, W - 1], what is ahead of X; optional
            activation: what is done to sums; default identity
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            [B, D, T]
        """
    def causal_conv1d_backward(
        self,
        dY: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        activation: Activation = "identity",
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor | None]:
        """dX, dW and dbias of `causal_conv1d` without initial states, from dY.

        dY, X, dX [B, D, T], W, dW [D, W], bias, dbias [D]; dbias is there where bias is.  The sums
        that a silu was applied to are computed again from X, W and bias.
        Source: cudnn-frontend, causal_conv1d_backward.

        Arguments:
            dY: [B, D, T]
            x: [B, D, T]
            weight: [D, W]
            bias: [D]; optional
            activation: what was done to sums; default identity
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            dx: [B, D, T]
            dw: [D, W]
            dbias: [D]; may be None
        """
    @overload
    def resample(
        self,
        input: Tensor,
        resample_mode: ResampleMode,
        pre_padding: Fractions,
        post_padding: Fractions,
        stride: Fractions,
        window: Fractions,
        padding_mode: PaddingMode | None = None,
        generate_index: Literal[False] = False,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, None]:
        """Y = the windows of X, each taken to one element: pooling or upsampling.

        X [N, C, (D, H,) W], Y [N, C, (O, P,) Q], any layouts.  Window o starts at o * stride - pre;
        Q = (W + pre + post - window) // stride + 1.  All four are numbers over one denominator.
        MAXPOOL: the largest element, NaN if there is one.  AVGPOOL: the sum over the window's size
        (INCLUDE_PADDING) or over the elements that are inside X (EXCLUDE_PADDING).  BILINEAR, in one
        to three dims, and NEAREST: the value at the window's centre, see `dialect.windows`; that of
        the nearest edge outside X.
        Index [N, C, (O, P,) Q], of MAXPOOL: the place of the first maximum in its window, row-major,
        padding counted; the first NaN's if there is one.
        Source: cuDNN graph API, ResampleFwd operation, which gives no formula for the upsampling
        modes.  BILINEAR with its parameters (windows of 2, strides of 1/2, paddings of 1/2 and 1) is
        y[2i] = x[i], y[2i + 1] = (x[i] + x[i + 1]) / 2 along each dim, and y[2W - 1] = x[W - 1]: what
        cuDNN 9.19 gives on an H100, which declines all others, NEAREST and both gradients.

        Arguments:
            input: [N, C, (D, H,) W]
            resample_mode: how a window becomes an element
            pre_padding: elements before each spatial dim
            post_padding: elements after each spatial dim
            stride: from a window to the next, in each spatial dim
            window: its size, in each spatial dim
            padding_mode: what is around X; default: the mode's own
            generate_index: whether MAXPOOL has an index; default False
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            y: [N, C, (O, P,) Q]
            index: [N, C, (O, P,) Q]; may be None
        """
    @overload
    def resample(
        self,
        input: Tensor,
        resample_mode: MaxPool,
        pre_padding: Fractions,
        post_padding: Fractions,
        stride: Fractions,
        window: Fractions,
        padding_mode: PaddingMode | None = None,
        *,
        generate_index: Literal[True],
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor]: ...
    @overload
    def resample(
        self,
        input: Tensor,
        resample_mode: ResampleMode,
        pre_padding: Fractions,
        post_padding: Fractions,
        stride: Fractions,
        window: Fractions,
        padding_mode: PaddingMode | None = None,
        generate_index: bool = False,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor | None]: ...
    def resample_backward(
        self,
        loss: Tensor,
        resample_mode: ResampleMode,
        pre_padding: Fractions,
        post_padding: Fractions,
        stride: Fractions,
        window: Fractions,
        padding_mode: PaddingMode | None = None,
        input: Tensor | None = None,
        output: Tensor | None = None,
        index: Tensor | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """DX = what each element of X gets back from DY, through the windows that read it.

        DX [N, C, (D, H,) W], DY [N, C, (O, P,) Q].  MAXPOOL: an element of DY goes to the first
        maximum of its window, which Index says; without one, it is found again in X.  Y, which cuDNN
        asks for then, is not read.  AVGPOOL: it is spread over the window's elements; what falls on
        padding is lost.  BILINEAR, NEAREST: over the elements that Y was made of, with their weights.
        Each element of DX is summed by itself in a fixed order, so that results repeat bit by bit.
        Source: cuDNN graph API, ResampleBwd operation, without the upsampling modes.

        Arguments:
            loss: [N, C, (O, P,) Q]
            resample_mode: how a window becomes an element
            pre_padding: elements before each spatial dim
            post_padding: elements after each spatial dim
            stride: from a window to the next, in each spatial dim
            window: its size, in each spatial dim
            padding_mode: what is around X; default: the mode's own
            input: [N, C, (D, H,) W], of MAXPOOL; optional
            output: [N, C, (O, P,) Q], not read; optional
            index: [N, C, (O, P,) Q], of MAXPOOL; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            [N, C, (D, H,) W]
        """
    def rng(
        self,
        seed: Operand,
        offset: Operand = 0,
        distribution: RngDistribution = "BERNOULLI",
        bernoulli_probability: float | None = None,
        uniform_minimum: float | None = None,
        uniform_maximum: float | None = None,
        normal_mean: float | None = None,
        normal_standard_deviation: float | None = None,
        dim: Sizes | None = None,
        stride: Sizes | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y = random numbers, each a function of the seed, the offset and its place.

        Y [d0, ..., dn], any layout; seed and offset [1, ..., 1].  Element i of Y, counted row-major
        over its dims whatever its layout, comes from Philox 4x32-10 (see `dialect.philox`):

            w0 ... w3 = philox(counter = (q low, q high, offset low, offset high),
                               key = (seed low, seed high)),   q = i // 4, r = i % 4
            u(w) = (w >> 8) / 2**24, in [0, 1)
            BERNOULLI: 1 where u(wr) < probability, else 0
            UNIFORM: minimum + (maximum - minimum) * u(wr)
            NORMAL: mean + deviation * radius * (cos(angle) for even r, sin(angle) for odd r),
                    where radius = sqrt(-2 ln(u(wa) + 2**-24)), angle = 2 pi u(wb), wa = w0,
                    wb = w1 for r < 2, else w2 and w3
        where low and high are the halves of 64 bits.  Equal seeds and offsets give equal numbers on
        every device, in every kernel.  Arithmetic is in f32.
        Source: cuDNN graph API, Rng operation, which leaves the generator open.

        Arguments:
            seed: [1, ..., 1], INT64, or a number
            offset: [1, ..., 1], INT64, or a number; default 0
            distribution: what is drawn; default BERNOULLI
            bernoulli_probability: of a 1; optional
            uniform_minimum: the lower limit; optional
            uniform_maximum: the upper limit; optional
            normal_mean: the mean; optional
            normal_standard_deviation: the standard deviation; optional
            dim: dims of the result; None: set_dim sets them
            stride: strides of the result, in elements; default row-major
            name: a label; results are named after it

        Returns:
            [d0, ..., dn]
        """
    @overload
    def layernorm(
        self,
        norm_forward_phase: Training,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """Y = (X - mean) * inv_variance * scale + bias, over the axes where scale is not 1.

        X, Y [d0, ..., dn]; scale, bias [1 or d0, ..., 1 or dn]; epsilon, a scalar;
        mean, inv_variance [d0 or 1, ..., dn or 1], 1 on the normalized axes, TRAINING only.
        inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
        Source: cuDNN graph API, NormalizationForward operation, mode LAYER_NORM.

        Arguments:
            norm_forward_phase: whether the statistics are kept
            input: [d0, ..., dn]
            scale: [1 or d0, ..., 1 or dn]
            bias: scale's dims; optional
            epsilon: a scalar
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            y: [d0, ..., dn]
            mean: of each row; may be None
            inv_variance: of each row; may be None
        """
    @overload
    def layernorm(
        self,
        norm_forward_phase: Inference,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, None, None]: ...
    @overload
    def layernorm(
        self,
        norm_forward_phase: NormPhase,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor | None, GraphTensor | None]: ...
    @overload
    def rmsnorm(
        self,
        norm_forward_phase: Training,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor]:
        """Y = X * inv_variance * scale + bias, over the axes where scale is not 1.

        X, Y [d0, ..., dn]; scale, bias [1 or d0, ..., 1 or dn]; epsilon, a scalar;
        inv_variance [d0 or 1, ..., dn or 1], 1 on the normalized axes, TRAINING only.
        inv_variance = 1 / sqrt(mean(X * X) + epsilon).
        Source: cuDNN graph API, NormalizationForward operation, mode RMS_NORM.

        Arguments:
            norm_forward_phase: whether the statistics are kept
            input: [d0, ..., dn]
            scale: [1 or d0, ..., 1 or dn]
            bias: scale's dims; optional
            epsilon: a scalar
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            y: [d0, ..., dn]
            inv_variance: of each row; may be None
        """
    @overload
    def rmsnorm(
        self,
        norm_forward_phase: Inference,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, None]: ...
    @overload
    def rmsnorm(
        self,
        norm_forward_phase: NormPhase,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor | None]: ...
    @overload
    def adalayernorm(
        self,
        norm_forward_phase: Training,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """Y = (X - mean) * inv_variance * scale + bias, where scale and bias differ by batch.

        X, Y [B, d1, ..., dn]; scale, bias [B or 1, 1 or d1, ..., 1 or dn]; epsilon, a scalar;
        mean, inv_variance [B, d1 or 1, ..., dn or 1], 1 on the normalized axes, TRAINING only.
        The normalized axes are those where scale is not 1, the first one apart.
        inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
        Source: cuDNN graph API, NormalizationForward operation, mode ADA_LAYER_NORM.

        Arguments:
            norm_forward_phase: whether the statistics are kept
            input: [d0, ..., dn]
            scale: [B or 1, 1 or d1, ..., 1 or dn]
            bias: scale's dims; optional
            epsilon: a scalar
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            y: [d0, ..., dn]
            mean: of each row; may be None
            inv_variance: of each row; may be None
        """
    @overload
    def adalayernorm(
        self,
        norm_forward_phase: Inference,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, None, None]: ...
    @overload
    def adalayernorm(
        self,
        norm_forward_phase: NormPhase,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor | None, GraphTensor | None]: ...
    @overload
    def instancenorm(
        self,
        norm_forward_phase: Training,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """Y = (X - mean) * inv_variance * scale + bias, over each channel of each image.

        X, Y [N, C, (D, H,) W]; scale, bias [1, C, (1, 1,) 1]; epsilon, a scalar;
        mean, inv_variance [N, C, (1, 1,) 1], TRAINING only.
        inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
        Source: cuDNN graph API, NormalizationForward operation, mode INSTANCE_NORM.

        Arguments:
            norm_forward_phase: whether the statistics are kept
            input: [N, C, (D, H,) W]
            scale: [1, C, (1, 1,) 1]
            bias: scale's dims; optional
            epsilon: a scalar
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            y: [N, C, (D, H,) W]
            mean: [N, C, (1, 1,) 1]; may be None
            inv_variance: [N, C, (1, 1,) 1]; may be None
        """
    @overload
    def instancenorm(
        self,
        norm_forward_phase: Inference,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, None, None]: ...
    @overload
    def instancenorm(
        self,
        norm_forward_phase: NormPhase,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Operand = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor | None, GraphTensor | None]: ...
    @overload
    def batchnorm(
        self,
        input: Tensor,
        scale: Tensor,
        bias: Tensor,
        in_running_mean: Tensor,
        in_running_var: Tensor,
        epsilon: Operand,
        momentum: Operand,
        peer_stats: Tensors | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        peer_rank: SupportsIndex | None = None,
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor]:
        """Y = (X - mean) * inv_variance * scale + bias, with the statistics of each channel.

        X, Y [N, C, d2, ..., dn]; scale, bias and all statistics [1, C, 1, ...];
        epsilon, momentum, scalars.
        inv_variance = 1 / sqrt(variance + epsilon), the variance being the mean squared distance.
        next_running = (1 - momentum) * in_running + momentum * new, where the new variance is the
        unbiased one, variance * n / (n - 1) of n elements of a channel (variance if n is 1).
        With peer_stats, one tensor of each of several devices, the statistics are those of all devices'
        X together, and n counts all their elements: every device runs the same graph at the same time,
        on an X of the same dims, with the same tensors in the same order.  See peer_reduction.
        Source: cuDNN graph API, NormalizationForward operation, mode BATCH_NORM, phase TRAINING.
        peer_rank is ours: which of the tensors is this device's own.

        Arguments:
            input: [N, C, d2, ..., dn]
            scale: [1, C, 1, ...]
            bias: [1, C, 1, ...]
            in_running_mean: [1, C, 1, ...]; optional
            in_running_var: [1, C, 1, ...]; optional
            epsilon: a scalar
            momentum: a scalar; optional
            peer_stats: [devices, 4 * C, 1, ...], one of each device; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it
            peer_rank: which of peer_stats is its device's own; optional

        Returns:
            y: [N, C, d2, ..., dn]
            mean: [1, C, 1, ...]
            inv_variance: [1, C, 1, ...]
            next_running_mean: [1, C, 1, ...]; may be None
            next_running_var: [1, C, 1, ...]; may be None
        """
    @overload
    def batchnorm(
        self,
        input: Tensor,
        scale: Tensor,
        bias: Tensor,
        in_running_mean: Tensor | None = None,
        in_running_var: Tensor | None = None,
        epsilon: Operand = ...,
        momentum: Operand | None = None,
        peer_stats: Tensors | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        peer_rank: SupportsIndex | None = None,
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor, GraphTensor | None, GraphTensor | None]: ...
    def batchnorm_inference(
        self,
        input: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        scale: Tensor,
        bias: Tensor,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y = (X - mean) * inv_variance * scale + bias, with given statistics of each channel.

        X, Y [N, C, d2, ..., dn]; mean, inv_variance, scale, bias [1, C, 1, ...].
        Source: cuDNN graph API, NormalizationForward operation, mode BATCH_NORM, phase INFERENCE.

        Arguments:
            input: [N, C, d2, ..., dn]
            mean: [1, C, 1, ...]
            inv_variance: [1, C, 1, ...]
            scale: [1, C, 1, ...]
            bias: [1, C, 1, ...]
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            [N, C, d2, ..., dn]
        """
    def layernorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """The gradients of layernorm, from dY and the statistics of the forward pass.

        dY, X, dX [d0, ..., dn]; scale, dscale, dbias [1 or d0, ..., 1 or dn];
        mean, inv_variance [d0 or 1, ..., dn or 1], 1 on the axes where scale is not 1.
        With N = (X - mean) * inv_variance, g = dY * scale and avg over those axes,
        dX = inv_variance * (g - avg(g) - N * avg(g * N)); dscale and dbias are the sums of dY * N
        and of dY over the other axes.
        Source: cuDNN graph API, NormalizationBackward operation, mode LAYER_NORM.

        Arguments:
            grad: [d0, ..., dn]
            input: [d0, ..., dn]
            scale: [1 or d0, ..., 1 or dn]
            mean: of each row
            inv_variance: of each row
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            dx: [d0, ..., dn]
            dscale: scale's dims
            dbias: scale's dims
        """
    @overload
    def rmsnorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        inv_variance: Tensor,
        has_dbias: Literal[True],
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """The gradients of rmsnorm, from dY and the statistics of the forward pass.

        dY, X, dX [d0, ..., dn]; scale, dscale, dbias [1 or d0, ..., 1 or dn];
        inv_variance [d0 or 1, ..., dn or 1], 1 on the axes where scale is not 1.
        With N = X * inv_variance, g = dY * scale and avg over those axes,
        dX = inv_variance * (g - N * avg(g * N)); dscale and dbias are the sums of dY * N and of dY
        over the other axes.
        Source: cuDNN graph API, NormalizationBackward operation, mode RMS_NORM.

        Arguments:
            grad: [d0, ..., dn]
            input: [d0, ..., dn]
            scale: [1 or d0, ..., 1 or dn]
            inv_variance: of each row
            has_dbias: whether the norm had a bias
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            dx: [d0, ..., dn]
            dscale: scale's dims
            dbias: scale's dims; may be None
        """
    @overload
    def rmsnorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        inv_variance: Tensor,
        has_dbias: Literal[False],
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, None]: ...
    @overload
    def rmsnorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        inv_variance: Tensor,
        has_dbias: bool,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor | None]: ...
    def adalayernorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """The gradients of adalayernorm, from dY and the statistics of the forward pass.

        dY, X, dX [B, d1, ..., dn]; scale, dscale, dbias [B or 1, 1 or d1, ..., 1 or dn];
        mean, inv_variance [B, d1 or 1, ..., dn or 1], 1 on the normalized axes, which are those
        where scale is not 1, the first one apart.
        With N = (X - mean) * inv_variance, g = dY * scale and avg over those axes,
        dX = inv_variance * (g - avg(g) - N * avg(g * N)); dscale and dbias are the sums of dY * N
        and of dY over the axes where scale is 1.
        Source: cuDNN graph API, NormalizationBackward operation, mode ADA_LAYER_NORM.

        Arguments:
            grad: [d0, ..., dn]
            input: [d0, ..., dn]
            scale: [B or 1, 1 or d1, ..., 1 or dn]
            mean: of each row
            inv_variance: of each row
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            dx: [d0, ..., dn]
            dscale: scale's dims
            dbias: scale's dims
        """
    def instancenorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor = ...,
        inv_variance: Tensor = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """The gradients of instancenorm, from dY and the statistics of the forward pass.

        dY, X, dX [N, C, (D, H,) W]; scale, dscale, dbias [1, C, (1, 1,) 1];
        mean, inv_variance [N, C, (1, 1,) 1].
        With M = (X - mean) * inv_variance and avg over the spatial axes,
        dX = scale * inv_variance * (dY - avg(dY) - M * avg(dY * M)); dscale and dbias are the sums
        of dY * M and of dY over all axes but that of channels.
        Source: cuDNN graph API, NormalizationBackward operation, mode INSTANCE_NORM.

        Arguments:
            grad: [N, C, (D, H,) W]
            input: [N, C, (D, H,) W]
            scale: [1, C, (1, 1,) 1]
            mean: [N, C, (1, 1,) 1]
            inv_variance: [N, C, (1, 1,) 1]
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            dx: [N, C, (D, H,) W]
            dscale: scale's dims
            dbias: scale's dims
        """
    def batchnorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        peer_stats: Tensors | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        peer_rank: SupportsIndex | None = None,
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """The gradients of batchnorm, from dY and the statistics of the forward pass.

        dY, X, dX [N, C, d2, ..., dn]; scale, dscale, dbias, mean, inv_variance [1, C, 1, ...].
        With M = (X - mean) * inv_variance and avg over all axes but that of channels,
        dX = scale * inv_variance * (dY - avg(dY) - M * avg(dY * M)); dscale and dbias are the sums
        of dY * M and of dY over the same axes.
        With peer_stats, one tensor of each of several devices, averages and sums are over all devices'
        dY and X together: every device runs the same graph at the same time, on tensors of the same
        dims, with the same peer_stats in the same order.  See peer_reduction.
        Source: cuDNN graph API, NormalizationBackward operation, mode BATCH_NORM.
        peer_rank is ours: which of the tensors is this device's own.

        Arguments:
            grad: [N, C, d2, ..., dn]
            input: [N, C, d2, ..., dn]
            scale: [1, C, 1, ...]
            mean: [1, C, 1, ...]
            inv_variance: [1, C, 1, ...]
            peer_stats: [devices, 4 * C, 1, ...], one of each device; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it
            peer_rank: which of peer_stats is its device's own; optional

        Returns:
            dx: [N, C, d2, ..., dn]
            dscale: scale's dims
            dbias: scale's dims
        """
    def genstats(
        self, input: Tensor, compute_data_type: DataType | None = None, name: str = ""
    ) -> tuple[GraphTensor, GraphTensor]:
        """The sum of each channel, and the sum of its squares.

        X [N, C, d2, ..., dn]; sum, sq_sum [1, C, 1, ...].
        Source: cuDNN graph API, GenStats operation, mode SUM_SQSUM.

        Arguments:
            input: [N, C, d2, ..., dn]
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            sum: [1, C, 1, ...]
            sq_sum: [1, C, 1, ...]
        """
    @overload
    def bn_finalize(
        self,
        sum: Tensor,
        sq_sum: Tensor,
        scale: Tensor,
        bias: Tensor,
        epsilon: Operand,
        accum_count: Operand,
        prev_running_mean: Tensor,
        prev_running_var: Tensor,
        momentum: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor]:
        """Computes what batch normalization needs, from the sums of each channel and of its squares.

        sum, sq_sum, scale, bias and all results [1, C, 1, ...];
        epsilon, accum_count, momentum, scalars.
        With n = accum_count, the elements of a channel: mean = sum / n,
        variance = sq_sum / n - mean * mean, or 0 where that is less,
        inv_variance = 1 / sqrt(variance + epsilon).  Y = eq_scale * X + eq_bias, where
        eq_scale = scale * inv_variance and eq_bias = bias - mean * eq_scale.
        next_running = (1 - momentum) * prev_running + momentum * new, where the new variance is the
        unbiased one, variance * n / (n - 1) (variance if n is 1).
        Source: cuDNN graph API, BnFinalizeStatistics operation, mode STATISTICS_TRAINING.

        Arguments:
            sum: [1, C, 1, ...]
            sq_sum: [1, C, 1, ...]
            scale: [1, C, 1, ...]
            bias: [1, C, 1, ...]
            epsilon: a scalar
            accum_count: a scalar
            prev_running_mean: [1, C, 1, ...]; optional
            prev_running_var: [1, C, 1, ...]; optional
            momentum: a scalar; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            eq_scale: [1, C, 1, ...]
            eq_bias: [1, C, 1, ...]
            mean: [1, C, 1, ...]
            inv_variance: [1, C, 1, ...]
            next_running_mean: [1, C, 1, ...]; may be None
            next_running_var: [1, C, 1, ...]; may be None
        """
    @overload
    def bn_finalize(
        self,
        sum: Tensor,
        sq_sum: Tensor,
        scale: Tensor,
        bias: Tensor,
        epsilon: Operand,
        accum_count: Operand,
        prev_running_mean: Tensor | None = None,
        prev_running_var: Tensor | None = None,
        momentum: Operand | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[
        GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor | None, GraphTensor | None
    ]: ...
    def dbn_weight(
        self,
        dy: Tensor,
        x: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        scale: Tensor,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor]:
        """The gradients of a batch norm's scale and bias, and the factors of that of its input.

        dY, X [N, C, d2, ..., dn]; all others [1, C, 1, ...].
        With M = (X - mean) * inv_variance, dscale and dbias are the sums of dY * M and of dY of each
        channel, and batchnorm's gradient is dX = eq_scale_dy * dY + eq_scale_x * X + eq_bias: with n
        elements of a channel, eq_scale_dy = scale * inv_variance,
        eq_scale_x = -eq_scale_dy * inv_variance * dscale / n and
        eq_bias = -eq_scale_dy * dbias / n - eq_scale_x * mean.
        Source: cuDNN graph API, BnBwdWeight operation.

        Arguments:
            dy: [N, C, d2, ..., dn]
            x: [N, C, d2, ..., dn]
            mean: [1, C, 1, ...]
            inv_variance: [1, C, 1, ...]
            scale: [1, C, 1, ...]
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            dscale: [1, C, 1, ...]
            dbias: [1, C, 1, ...]
            eq_scale_dy: [1, C, 1, ...]
            eq_scale_x: [1, C, 1, ...]
            eq_bias: [1, C, 1, ...]
        """
    def peer_reduction(
        self,
        a: Tensor,
        b: Tensor,
        peers: Tensors,
        mode: PeerMode = "moments",
        peer_rank: SupportsIndex = ...,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> tuple[GraphTensor, GraphTensor]:
        """(c, d) = (a, b) of several devices, made one of all.

        a, b, c, d [1, C, 1, ...]; peers, one tensor of each device, [devices, 4 * C, 1, ...].

            gradients: c = sum_r a_r, d = avg_r b_r
            moments: c = avg_r a_r, d = avg_r (b_r + (a_r - c)^2): the mean and the variance of all
                     devices' elements, from those of each device, of equally many elements

        a_r and b_r are those of device r, in the order of peers; sums are in that order, in FLOAT, of
        means in DOUBLE, so that all devices get the same bits.  Row r of each tensor of peers holds
        what device r left there: a_r in its first C elements, b_r in the next.  Element 2 * C of row 0
        counts the devices that have.

        Every device runs the same graph at the same time, with the same peers in the same order, and
        its own peer_rank.  The kernel writes its device's row into all peers' memory and waits for all
        others' in its own: peers' memory has to be accessible from the device (the caller enables that,
        cuCtxEnablePeerAccess), and zeroed before each execution, before any device starts.  A device
        that never runs the graph leaves the others waiting.  Load and bind the plan everywhere before
        it is executed anywhere: loading code may wait for what runs.  As a value (`reference`), the
        results follow from a, b and the rows of the device's own tensor as they stand there.
        Source: ours; batchnorm and batchnorm_backward are made of it where they have peer_stats, as
        the cuDNN developer guide describes under BnAddRelu, single node multi-GPU batch norm.

        Arguments:
            a: [1, C, 1, ...]
            b: [1, C, 1, ...]
            peers: [devices, 4 * C, 1, ...], one of each device
            mode: what a and b are; default moments
            peer_rank: which of peers is its device's own
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            c: [1, C, 1, ...]
            d: [1, C, 1, ...]
        """
    def softmax(
        self,
        input: Tensor,
        axis: Spatial = -1,
        algorithm: SoftmaxAlgorithm = "ACCURATE",
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y = exp(X) / sum(exp(X)), the sum over the axes that are given.

        X, Y [d0, ..., dn].  The algorithm ACCURATE subtracts the largest X of the sum from every X
        first, so that no exponential overflows; FAST does not; LOG gives the logarithm,
        Y = X - max - log(sum(exp(X - max))).  Of X [N, C, H, W], cuDNN's mode INSTANCE is
        axis=[1, 2, 3] and its mode CHANNEL is axis=1.
        Source: cuDNN API reference, cudnnSoftmaxForward and cudnnSoftmaxAlgorithm_t.

        Arguments:
            input: [d0, ..., dn]
            axis: the axes of a sum: one, or several; default -1
            algorithm: how it is computed; default ACCURATE
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            [d0, ..., dn]
        """
    def softmax_backward(
        self,
        grad: Tensor,
        output: Tensor,
        axis: Spatial = -1,
        algorithm: SoftmaxAlgorithm = "ACCURATE",
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """The gradient of softmax, from its result Y.

        dY, Y, dX [d0, ..., dn].  dX = Y * (dY - sum(Y * dY)), the sum over the axes that are given;
        of the algorithm LOG, whose Y is a logarithm, dX = dY - exp(Y) * sum(dY).
        Source: cuDNN API reference, cudnnSoftmaxBackward and cudnnSoftmaxAlgorithm_t.

        Arguments:
            grad: [d0, ..., dn]
            output: [d0, ..., dn]
            axis: the axes of a sum: one, or several; default -1
            algorithm: how Y was computed; default ACCURATE
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            [d0, ..., dn]
        """
    def rope(
        self,
        input: Tensor,
        freqs: Tensor,
        output_scale: float = 1.0,
        rope_dim: SupportsIndex = 0,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y = output_scale * X, pairs of elements of each row rotated by angles: RoPE.

        X, Y [B, H, S, D]; freqs [1 or B, 1, S, R] or [S, 1, 1, R], angles in radians.  R = rope_dim, or
        D if that is 0: the last R elements of a row are rotated, element i of them with element
        i + R / 2, by freqs[i]; the second half of freqs repeats the first and is not read.  With these
        halves low and high and angles t,
        Y = output_scale * [X of the other elements, low * cos(t) - high * sin(t),
        high * cos(t) + low * sin(t)].
        A virtual Y without a type gets X's, as attention reads it.
        Source: cudnn-frontend, RoPE operation.

        Arguments:
            input: [B, H, S, D]
            freqs: [1 or B, 1, S, R] or [S, 1, 1, R], angles in radians
            output_scale: what the result is multiplied by; default 1.0
            rope_dim: how many elements of a row are rotated; 0: all; default 0
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            [B, H, S, D]
        """
    def rope_backward(
        self,
        dY: Tensor,
        freqs: Tensor,
        output_scale: float = 1.0,
        rope_dim: SupportsIndex = 0,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dX of `rope`, from dY: output_scale * dY, pairs rotated by the negative angles.

        dY, dX [B, H, S, D]; freqs, output_scale and rope_dim as `rope` was given them.  freqs has no
        gradient.
        Source: cudnn-frontend, RoPE backward operation.

        Arguments:
            dY: [B, H, S, D]
            freqs: [1 or B, 1, S, R] or [S, 1, 1, R], angles in radians
            output_scale: what the result is multiplied by; default 1.0
            rope_dim: how many elements of a row are rotated; 0: all; default 0
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            [B, H, S, D]
        """
    @overload
    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_inference: Literal[False] | None = None,
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        block_mask: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        score_mod: ScoreModification | None = None,
        *,
        generate_stats: Literal[True],
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        unfuse_fma: bool = False,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        softmax_precision: DataType | None = None,
        attn_scale_prefolded: bool = False,
        kv_mask: Tensor | None = None,
    ) -> tuple[GraphTensor, GraphTensor]:
        """Scaled dot-product attention, softmax(attn_scale * Q K^T ...) V; gives [O, stats or None].

        q [B, Hq, Sq, D], k [B, Hk, Skv, D], v [B, Hv, Skv, Dv], O [B, Hq, Sq, Dv], any strides; Hk and
        Hv divide Hq.  What each part means, and the order in which they apply: operation sdpa.
        generate_stats: whether stats [B, Hq, Sq, 1], FLOAT, are made; it, or is_inference, which is its
        negation, must be given.  attn_scale: a number or a tensor of one element; none means 1.
        score_mod(graph, scores): operations of the graph that make other scores of the scaled ones,
        ahead of bias, ALiBi and masks; the graph then holds the operations that attention stands for in
        place of the one.  use_causal_mask, use_causal_mask_bottom_right: an alignment and a right bound
        of 0, whatever else these are given as; sliding_window_length: a left bound.
        Packed sequences: q, k, v and results with a ragged offset, declared as if they were padded;
        memory has the rows of all sequences, max_total_seq_len_q or _kv of them (default B * S), and
        strides but that of B hold.  Lengths must be given, or cu_seq_len_q and cu_seq_len_kv, INT32
        [B + 1, 1, 1, 1]: where each sequence begins and the last ends, in rows, of tensors that are all
        packed then, O too.
        dropout: (probability, seed, offset) or (mask, scale).  rng_dump, score_max, score_sum_exp:
        tensors of the graph that are written.  implementation: any of cuDNN's; all are the same here.
        Calls that contradict themselves, and missing tensors, are BAD_PARAM (a ValueError); what dnnc
        has not is NOT_SUPPORTED (cudnnGraphNotSupportedError).

        Arguments:
            q: [B, Hq, Sq, D]
            k: [B, Hk, Skv, D], or [blocks, Hk, block size, D]
            v: [B, Hv, Skv, Dv], or [blocks, Hv, block size, Dv]
            is_inference: whether there are no stats: the negation of generate_stats
            attn_scale: [1, 1, 1, 1], what scores are multiplied by; optional
            bias: [1 or B, 1 or Hq, 1 or Sq, 1 or Skv]; optional
            block_mask: [B or 1, Hq or 1, Sq / 128, Skv / 128 / 8], the bits of blocks that are seen; optional
            use_alibi_mask: whether ALiBi is added; default False
            use_padding_mask: whether keys and rows past seq_len_kv and seq_len_q are hidden; default False
            seq_len_q: [B, 1, 1, 1], rows of each batch; optional
            seq_len_kv: [B, 1, 1, 1], keys of each batch; optional
            use_causal_mask: TOP_LEFT and a right bound of 0; default False
            use_causal_mask_bottom_right: BOTTOM_RIGHT and a right bound of 0; default False
            sliding_window_length: a left bound
            diagonal_alignment: where the diagonal is; default TOP_LEFT
            diagonal_band_left_bound: columns up to the diagonal that a row sees, the diagonal's included; optional
            diagonal_band_right_bound: columns past the diagonal that a row sees; optional
            dropout: (probability, seed, offset), or (mask, scale)
            rng_dump: [B, Hq, Sq, Skv], the mask of dropout; optional
            paged_attention_k_table: [B, 1, pages, 1], the block of each page of K; optional
            paged_attention_v_table: [B, 1, pages, 1], the block of each page of V; optional
            paged_attention_max_seq_len_kv: Skv of a paged K and V (default: of all pages); optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it
            score_mod: a function of the graph and the scaled scores that gives others
            generate_stats: whether stats are made; it or is_inference must be given
            implementation: any of cuDNN's; all are the same here; default AUTO
            score_max: [B, Hq, Sq, 1]; optional
            score_sum_exp: [B, Hq, Sq, 1]; optional
            sink_token: [1, Hq, 1, 1], a score without a value; optional
            unfuse_fma: False; default False
            max_total_seq_len_q: rows that packed queries have; default B * Sq
            max_total_seq_len_kv: rows that packed keys have; default B * Skv
            cu_seq_len_q: [B + 1, 1, 1, 1], INT32, where queries of a batch begin, in rows
            cu_seq_len_kv: [B + 1, 1, 1, 1], INT32, where keys of a batch begin, in rows
            stats_use_log2: whether stats are logarithms of base 2; default False
            softmax_precision: none: what compute_data_type says
            attn_scale_prefolded: False; default False
            kv_mask: none: a bias says it

        Returns:
            o: [B, Hq, Sq, Dv]
            stats: [B, Hq, Sq, 1], the log of the sum of exponentials; may be None
        """
    @overload
    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_inference: Literal[True] | None = None,
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        block_mask: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        score_mod: ScoreModification | None = None,
        *,
        generate_stats: Literal[False],
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        unfuse_fma: bool = False,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        softmax_precision: DataType | None = None,
        attn_scale_prefolded: bool = False,
        kv_mask: Tensor | None = None,
    ) -> tuple[GraphTensor, None]: ...
    @overload
    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_inference: Literal[True],
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        block_mask: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        score_mod: ScoreModification | None = None,
        generate_stats: None = None,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        unfuse_fma: bool = False,
        *,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        softmax_precision: DataType | None = None,
        attn_scale_prefolded: bool = False,
        kv_mask: Tensor | None = None,
    ) -> tuple[GraphTensor, None]: ...
    @overload
    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_inference: Literal[False],
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        block_mask: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        score_mod: ScoreModification | None = None,
        generate_stats: None = None,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        unfuse_fma: bool = False,
        *,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        softmax_precision: DataType | None = None,
        attn_scale_prefolded: bool = False,
        kv_mask: Tensor | None = None,
    ) -> tuple[GraphTensor, GraphTensor]: ...
    @overload
    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_inference: bool | None = None,
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        block_mask: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        score_mod: ScoreModification | None = None,
        generate_stats: bool | None = None,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        unfuse_fma: bool = False,
        *,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        softmax_precision: DataType | None = None,
        attn_scale_prefolded: bool = False,
        kv_mask: Tensor | None = None,
    ) -> tuple[GraphTensor, GraphTensor | None]: ...
    def sdpa_backward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        dO: Tensor,
        stats: Tensor,
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        dBias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        use_deterministic_algorithm: bool = False,
        compute_data_type: DataType | None = None,
        name: str = "",
        score_mod: ScoreModification | None = None,
        score_mod_bprop: ScoreModification | None = None,
        sink_token: Tensor | None = None,
        dSink_token: Tensor | None = None,
        *,
        block_mask: Tensor | None = None,
        stats_use_log2: bool = False,
        softmax_precision: DataType | None = None,
        attn_scale_prefolded: bool = False,
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor]:
        """The gradient of `sdpa`; gives (dQ, dK, dV).

        What is not said here is as in `sdpa`, and has to be what the forward pass was given.  o, stats:
        its results; dO: the gradient of o, [B, Hq, Sq, Dv].  dQ, dK, dV have the dims of q, k, v.
        dBias, dSink_token: tensors of the graph that are written, the gradients of bias and sink_token,
        with their dims.
        score_mod_bprop(graph, gradient): operations of the graph that make the gradient of the scaled
        scores of that of the scores that score_mod gives; without it, the derivative of score_mod's
        pointwise operations is taken.  What else score_mod reads gets no gradient.
        dropout: (probability, seed, offset), which draw the same mask again, or (mask, scale) and,
        where it is given, 1 / scale, which is not read.  use_deterministic_algorithm: results have the
        same bits each time; without it dQ may be added up in any order.
        Packed sequences: tensors with a ragged offset, q, o, dO, dQ (and stats, if they have one) on
        one side, k, v, dK, dV on the other.

        Arguments:
            q: [B, Hq, Sq, D]
            k: [B, Hk, Skv, D], or [blocks, Hk, block size, D]
            v: [B, Hv, Skv, Dv], or [blocks, Hv, block size, Dv]
            o: [B, Hq, Sq, Dv], of the forward pass
            dO: [B, Hq, Sq, Dv], the gradient of O
            stats: [B, Hq, Sq, 1], the log of the sum of exponentials, of the forward pass
            attn_scale: [1, 1, 1, 1], what scores are multiplied by; optional
            bias: [1 or B, 1 or Hq, 1 or Sq, 1 or Skv]; optional
            dBias: [1 or B, 1 or Hq, 1 or Sq, 1 or Skv]; optional
            use_alibi_mask: whether ALiBi is added; default False
            use_padding_mask: whether keys and rows past seq_len_kv and seq_len_q are hidden; default False
            seq_len_q: [B, 1, 1, 1], rows of each batch; optional
            seq_len_kv: [B, 1, 1, 1], keys of each batch; optional
            max_total_seq_len_q: rows that packed queries have; default B * Sq
            max_total_seq_len_kv: rows that packed keys have; default B * Skv
            use_causal_mask: TOP_LEFT and a right bound of 0; default False
            use_causal_mask_bottom_right: BOTTOM_RIGHT and a right bound of 0; default False
            sliding_window_length: a left bound
            diagonal_alignment: where the diagonal is; default TOP_LEFT
            diagonal_band_left_bound: columns up to the diagonal that a row sees, the diagonal's included; optional
            diagonal_band_right_bound: columns past the diagonal that a row sees; optional
            dropout: (probability, seed, offset), or (mask, scale)
            rng_dump: [B, Hq, Sq, Skv], the mask of dropout; optional
            use_deterministic_algorithm: whether results have the same bits each time; default False
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it
            score_mod: a function of the graph and the scaled scores that gives others
            score_mod_bprop: a function of the graph and the gradient of what score_mod gives
            sink_token: [1, Hq, 1, 1], a score without a value; optional
            dSink_token: [1, Hq, 1, 1]; optional
            block_mask: [B or 1, Hq or 1, Sq / 128, Skv / 128 / 8], the bits of blocks that are seen; optional
            stats_use_log2: whether stats are logarithms of base 2; default False
            softmax_precision: none: what compute_data_type says
            attn_scale_prefolded: False; default False

        Returns:
            dq: [B, Hq, Sq, D]
            dk: [B, Hk, Skv, D]
            dv: [B, Hv, Skv, Dv]
        """
    @overload
    def sdpa_fp8(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        descale_q: Tensor,
        descale_k: Tensor,
        descale_v: Tensor,
        descale_s: Tensor,
        scale_s: Tensor,
        scale_o: Tensor,
        is_inference: Literal[False] | None = None,
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        left_bound: int | None = None,
        right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        fn: ScoreModification | None = None,
        *,
        generate_stats: Literal[True],
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor, GraphTensor]:
        """Attention of FP8_E4M3 or FP8_E5M2; gives [O, stats or None, amax_s, amax_o].

        What is not said here is as in `sdpa`: dims, masks, lengths, packed sequences, the score
        modification `fn`, and what is refused.  descale_q, descale_k, descale_v: what Q, K, V in memory
        are multiplied by; scale_s, descale_s: what the probabilities P are multiplied by before they
        become fp8, and after; scale_o: what O is multiplied by before it has its type.  All are tensors
        of one number, FLOAT [1, 1, 1, 1].  amax_s, amax_o: the largest P and |O| before their scales,
        FLOAT [1, 1, 1, 1], made where they are outputs.  compute_data_type, or the graph's, may be
        FAST_FLOAT_FOR_FP8: sums may stay in the tensor cores' accumulators.

        Arguments:
            q: [B, Hq, Sq, D]
            k: [B, Hk, Skv, D], or [blocks, Hk, block size, D]
            v: [B, Hv, Skv, Dv], or [blocks, Hv, block size, Dv]
            descale_q: [1, 1, 1, 1], of Q
            descale_k: [1, 1, 1, 1], of K
            descale_v: [1, 1, 1, 1], of V
            descale_s: [1, 1, 1, 1], of P
            scale_s: [1, 1, 1, 1], of P
            scale_o: [1, 1, 1, 1], of O
            is_inference: whether there are no stats: the negation of generate_stats
            attn_scale: [1, 1, 1, 1], what scores are multiplied by; optional
            bias: [1 or B, 1 or Hq, 1 or Sq, 1 or Skv]; optional
            use_alibi_mask: whether ALiBi is added; default False
            use_padding_mask: whether keys and rows past seq_len_kv and seq_len_q are hidden; default False
            seq_len_q: [B, 1, 1, 1], rows of each batch; optional
            seq_len_kv: [B, 1, 1, 1], keys of each batch; optional
            use_causal_mask: TOP_LEFT and a right bound of 0; default False
            use_causal_mask_bottom_right: BOTTOM_RIGHT and a right bound of 0; default False
            sliding_window: a left bound
            diagonal_alignment: where the diagonal is; default TOP_LEFT
            left_bound: columns up to the diagonal that a row sees, the diagonal's included; optional
            right_bound: columns past the diagonal that a row sees; optional
            dropout: (probability, seed, offset), or (mask, scale)
            rng_dump: [B, Hq, Sq, Skv], the mask of dropout; optional
            paged_attention_k_table: [B, 1, pages, 1], the block of each page of K; optional
            paged_attention_v_table: [B, 1, pages, 1], the block of each page of V; optional
            paged_attention_max_seq_len_kv: Skv of a paged K and V (default: of all pages); optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it
            fn: a function of the graph and the scaled scores that gives others
            generate_stats: whether stats are made; it or is_inference must be given
            score_max: [B, Hq, Sq, 1]; optional
            score_sum_exp: [B, Hq, Sq, 1]; optional
            sink_token: [1, Hq, 1, 1], a score without a value; optional
            max_total_seq_len_q: rows that packed queries have; default B * Sq
            max_total_seq_len_kv: rows that packed keys have; default B * Skv
            cu_seq_len_q: [B + 1, 1, 1, 1], INT32, where queries of a batch begin, in rows
            cu_seq_len_kv: [B + 1, 1, 1, 1], INT32, where keys of a batch begin, in rows
            stats_use_log2: whether stats are logarithms of base 2; default False
            implementation: any of cuDNN's; all are the same here; default AUTO

        Returns:
            o: [B, Hq, Sq, Dv]
            stats: [B, Hq, Sq, 1], the log of the sum of exponentials; may be None
            amax_s: [1, 1, 1, 1], the largest P
            amax_o: [1, 1, 1, 1], the largest |O|
        """
    @overload
    def sdpa_fp8(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        descale_q: Tensor,
        descale_k: Tensor,
        descale_v: Tensor,
        descale_s: Tensor,
        scale_s: Tensor,
        scale_o: Tensor,
        is_inference: Literal[True] | None = None,
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        left_bound: int | None = None,
        right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        fn: ScoreModification | None = None,
        *,
        generate_stats: Literal[False],
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
    ) -> tuple[GraphTensor, None, GraphTensor, GraphTensor]: ...
    @overload
    def sdpa_fp8(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        descale_q: Tensor,
        descale_k: Tensor,
        descale_v: Tensor,
        descale_s: Tensor,
        scale_s: Tensor,
        scale_o: Tensor,
        is_inference: Literal[True],
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        left_bound: int | None = None,
        right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        fn: ScoreModification | None = None,
        generate_stats: None = None,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        *,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
    ) -> tuple[GraphTensor, None, GraphTensor, GraphTensor]: ...
    @overload
    def sdpa_fp8(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        descale_q: Tensor,
        descale_k: Tensor,
        descale_v: Tensor,
        descale_s: Tensor,
        scale_s: Tensor,
        scale_o: Tensor,
        is_inference: Literal[False],
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        left_bound: int | None = None,
        right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        fn: ScoreModification | None = None,
        generate_stats: None = None,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        *,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
    ) -> tuple[GraphTensor, GraphTensor, GraphTensor, GraphTensor]: ...
    @overload
    def sdpa_fp8(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        descale_q: Tensor,
        descale_k: Tensor,
        descale_v: Tensor,
        descale_s: Tensor,
        scale_s: Tensor,
        scale_o: Tensor,
        is_inference: bool | None = None,
        attn_scale: Operand | None = None,
        bias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window: int | None = None,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        left_bound: int | None = None,
        right_bound: int | None = None,
        dropout: Dropout | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        fn: ScoreModification | None = None,
        generate_stats: bool | None = None,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        *,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        cu_seq_len_q: Tensor | None = None,
        cu_seq_len_kv: Tensor | None = None,
        stats_use_log2: bool = False,
        implementation: AttentionImplementation = enums.attention_implementation.AUTO,
    ) -> tuple[GraphTensor, GraphTensor | None, GraphTensor, GraphTensor]: ...
    def sdpa_fp8_backward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        dO: Tensor,
        stats: Tensor,
        descale_q: Tensor,
        descale_k: Tensor,
        descale_v: Tensor,
        descale_o: Tensor,
        descale_dO: Tensor,
        descale_s: Tensor,
        descale_dP: Tensor,
        scale_s: Tensor,
        scale_dQ: Tensor,
        scale_dK: Tensor,
        scale_dV: Tensor,
        scale_dP: Tensor,
        attn_scale: Operand | None = None,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        diagonal_alignment: DiagonalAlignment = enums.diagonal_alignment.TOP_LEFT,
        left_bound: int | None = None,
        right_bound: int | None = None,
        use_deterministic_algorithm: bool = False,
        dropout: Dropout | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
        sink_token: Tensor | None = None,
        dSink_token: Tensor | None = None,
        *,
        max_total_seq_len_q: Size | None = None,
        max_total_seq_len_kv: Size | None = None,
        stats_use_log2: bool = False,
        softmax_precision: DataType | None = None,
        attn_scale_prefolded: bool = False,
    ) -> tuple[
        GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor, GraphTensor
    ]:
        """The gradient of `sdpa_fp8`; gives (dQ, dK, dV, amax_dQ, amax_dK, amax_dV, amax_dP).

        What is not said here is as in `sdpa_backward` and `sdpa_fp8`.  descale_q to descale_dO: what
        q, k, v, o, dO in memory are multiplied by; scale_s and scale_dP, descale_s and descale_dP: what
        the probabilities and the gradient of the scores are multiplied by before they become fp8, of
        q's and of dO's type, and after; scale_dQ, scale_dK, scale_dV: what results are multiplied by
        before they have their types.  All are tensors of one number, FLOAT [1, 1, 1, 1].  amax_dQ,
        amax_dK, amax_dV, amax_dP: the largest magnitudes before these scales, FLOAT [1, 1, 1, 1], made
        where they are outputs; that of dP is of the gradient of the scores, times attn_scale.

        Arguments:
            q: [B, Hq, Sq, D]
            k: [B, Hk, Skv, D], or [blocks, Hk, block size, D]
            v: [B, Hv, Skv, Dv], or [blocks, Hv, block size, Dv]
            o: [B, Hq, Sq, Dv], of the forward pass
            dO: [B, Hq, Sq, Dv], the gradient of O
            stats: [B, Hq, Sq, 1], the log of the sum of exponentials, of the forward pass
            descale_q: [1, 1, 1, 1], of Q
            descale_k: [1, 1, 1, 1], of K
            descale_v: [1, 1, 1, 1], of V
            descale_o: [1, 1, 1, 1], of O
            descale_dO: [1, 1, 1, 1], of dO
            descale_s: [1, 1, 1, 1], of P
            descale_dP: [1, 1, 1, 1], of dS
            scale_s: [1, 1, 1, 1], of P
            scale_dQ: [1, 1, 1, 1], of dQ
            scale_dK: [1, 1, 1, 1], of dK
            scale_dV: [1, 1, 1, 1], of dV
            scale_dP: [1, 1, 1, 1], of dS
            attn_scale: [1, 1, 1, 1], what scores are multiplied by; optional
            use_padding_mask: whether keys and rows past seq_len_kv and seq_len_q are hidden; default False
            seq_len_q: [B, 1, 1, 1], rows of each batch; optional
            seq_len_kv: [B, 1, 1, 1], keys of each batch; optional
            use_causal_mask: TOP_LEFT and a right bound of 0; default False
            use_causal_mask_bottom_right: BOTTOM_RIGHT and a right bound of 0; default False
            diagonal_alignment: where the diagonal is; default TOP_LEFT
            left_bound: columns up to the diagonal that a row sees, the diagonal's included; optional
            right_bound: columns past the diagonal that a row sees; optional
            use_deterministic_algorithm: whether results have the same bits each time; default False
            dropout: (probability, seed, offset), or (mask, scale)
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it
            sink_token: [1, Hq, 1, 1], a score without a value; optional
            dSink_token: [1, Hq, 1, 1]; optional
            max_total_seq_len_q: rows that packed queries have; default B * Sq
            max_total_seq_len_kv: rows that packed keys have; default B * Skv
            stats_use_log2: whether stats are logarithms of base 2; default False
            softmax_precision: none: what compute_data_type says
            attn_scale_prefolded: False; default False

        Returns:
            dq: [B, Hq, Sq, D]
            dk: [B, Hk, Skv, D]
            dv: [B, Hv, Skv, Dv]
            amax_dq: [1, 1, 1, 1], the largest |dQ|
            amax_dk: [1, 1, 1, 1], the largest |dK|
            amax_dv: [1, 1, 1, 1], the largest |dV|
            amax_dp: [1, 1, 1, 1], the largest |dS|
        """
    def paged_cache_load(
        self,
        container: Tensor,
        sequence: Tensor,
        page_table: Tensor,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y[b, h, s, d] = container[table[b, 0, s // size, 0], h, s % size, d]; 0 past the length.

        Container [blocks, H, size, D], page table [B, 1, pages, 1], sequence [B, 1, 1, 1],
        Y [B, H, S, D].  Of each batch, keys below its length are loaded, from blocks that the table
        names; entries of the table for later pages are not used, and may be anything.  A block
        outside the container is undefined behaviour.
        Source: cuDNN graph API, PagedCacheLoad operation.

        Arguments:
            container: [blocks, H, size, D]
            sequence: [B, 1, 1, 1], the keys of each batch
            page_table: [B, 1, pages, 1], the block of each page
            compute_data_type: accepted; nothing is computed
            name: a label; results are named after it

        Returns:
            [B, H, S, D]
        """
    def block_mask_load(
        self,
        mask: Tensor,
        block_rows: SupportsIndex = 128,
        block_columns: SupportsIndex = 128,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y[b, h, r, c] = bit (c // columns) % 8 of mask[b, h, r // rows, c // columns // 8].

        Mask [B or 1, H or 1, Sq / rows, Skv / columns / 8], rounded up; Y [B, H, Sq, Skv].  Bit 0 of a
        byte, its least significant one, is of the first of its eight blocks of columns.  Bits of blocks
        past Skv may be anything.
        Source: cuDNN graph API, the block mask of fused flash attention; the order of bits is that of
        the tests of cudnn-frontend.

        Arguments:
            mask: [B or 1, H or 1, Sq / rows, Skv / columns / 8]
            block_rows: rows of a block; default 128
            block_columns: columns of a block; default 128
            compute_data_type: accepted; nothing is computed
            name: a label; results are named after it

        Returns:
            [B, H, Sq, Skv], whether a score is seen
        """
    def ragged_load(
        self,
        packed: Tensor,
        offset: Tensor,
        sequence: Tensor,
        ragged_offset_multiplier: SupportsIndex = 1,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Y[b, h, s, d] = packed[0, h, first[b] + s, d] for s below the sequence's length, else 0.

        Packed [1, H, T, D], whose T rows are those of all sequences, offset [B + 1, 1, 1, 1],
        sequence [B, 1, 1, 1], Y [B, H, S, D].  first[b] = offset[b] * offset_multiplier / the stride of
        packed's rows, as offsets count elements; the last offset, where the last sequence ends, is not
        used.  Of each sequence the rows below its length are read, and no others.  An offset within a
        row, and rows outside packed, are undefined behaviour.
        Source: the documentation of cudnn-frontend, ragged tensors (ragged_offset of a tensor); cuDNN
        has no such operation.

        Arguments:
            packed: [1, H, T, D], the rows of each sequence together
            offset: [B + 1, 1, 1, 1], the first element of each sequence
            sequence: [B, 1, 1, 1], the rows of each sequence
            ragged_offset_multiplier: what offsets are multiplied by; default 1
            compute_data_type: accepted; nothing is computed
            name: a label; results are named after it

        Returns:
            [B, H, S, D]
        """
    def ragged_store(
        self,
        input: Tensor,
        offset: Tensor,
        sequence: Tensor,
        ragged_offset_multiplier: SupportsIndex = 1,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """Packed[0, h, first[b] + s, d] = X[b, h, s, d] for s below the sequence's length.

        X [B, H, S, D], offset [B + 1, 1, 1, 1], sequence [B, 1, 1, 1], packed [1, H, T, D], whose T
        rows are those of all sequences.  first[b] = offset[b] * offset_multiplier / the stride of
        packed's rows, as offsets count elements; the last offset, where the last sequence ends, is not
        used.  Rows of no sequence are undefined: they may keep what was there, or be 0, which they are
        in the reference.  An offset within a row, rows outside packed, and rows of two sequences are
        undefined behaviour.
        Source: the documentation of cudnn-frontend, ragged tensors (ragged_offset of a tensor); cuDNN
        has no such operation.

        Arguments:
            input: [B, H, S, D]
            offset: [B + 1, 1, 1, 1], the first element of each sequence
            sequence: [B, 1, 1, 1], the rows of each sequence
            ragged_offset_multiplier: what offsets are multiplied by; default 1
            compute_data_type: accepted; nothing is computed
            name: a label; results are named after it

        Returns:
            [1, H, T, D], the rows of each sequence together; default T = B * S
        """
    def add(
        self, a: Operand, b: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x + b, element by element; dims of 1 broadcast.

        a, b: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ADD.

        Arguments:
            a: a tensor, or a number
            b: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def bias(
        self,
        input: Operand,
        bias: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x + b, element by element; dims of 1 broadcast.

        input, bias: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ADD.

        Arguments:
            input: a tensor, or a number
            bias: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def mul(
        self, a: Operand, b: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x * b, element by element; dims of 1 broadcast.

        a, b: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_MUL.

        Arguments:
            a: a tensor, or a number
            b: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def scale(
        self,
        input: Operand,
        scale: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x * b, element by element; dims of 1 broadcast.

        input, scale: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_MUL.

        Arguments:
            input: a tensor, or a number
            scale: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def min(
        self,
        input0: Operand,
        input1: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """min(x, b), element by element; dims of 1 broadcast.

        input0, input1: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_MIN.

        Arguments:
            input0: a tensor, or a number
            input1: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def max(
        self,
        input0: Operand,
        input1: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """max(x, b), element by element; dims of 1 broadcast.

        input0, input1: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_MAX.

        Arguments:
            input0: a tensor, or a number
            input1: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def add_square(
        self, a: Operand, b: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x + b * b, element by element; dims of 1 broadcast.

        a, b: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ADD_SQUARE.

        Arguments:
            a: a tensor, or a number
            b: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def div(
        self, a: Operand, b: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x / b, element by element; dims of 1 broadcast.

        a, b: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_DIV.

        Arguments:
            a: a tensor, or a number
            b: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def mod(
        self,
        input0: Operand,
        input1: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """the rest of x / b, with the sign of x, element by element; dims of 1 broadcast.

        input0, input1: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_MOD.

        Arguments:
            input0: a tensor, or a number
            input1: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def pow(
        self,
        input0: Operand,
        input1: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x ** b, element by element; dims of 1 broadcast.

        input0, input1: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_POW.

        Arguments:
            input0: a tensor, or a number
            input1: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def sub(
        self, a: Operand, b: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x - b, element by element; dims of 1 broadcast.

        a, b: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SUB.

        Arguments:
            a: a tensor, or a number
            b: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def atan2(
        self,
        input0: Operand,
        input1: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """the angle of (b, x), element by element; dims of 1 broadcast.

        input0, input1: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ATAN2.

        Arguments:
            input0: a tensor, or a number
            input1: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def sqrt(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x ** 0.5, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SQRT.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def abs(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """|x|, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ABS.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def ceil(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x rounded up, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_CEIL.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def cos(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """cos x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_COS.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def exp(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """e ** x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_EXP.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def floor(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x rounded down, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_FLOOR.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def log(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """the natural logarithm of x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_LOG.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def neg(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """-x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_NEG.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def rsqrt(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x ** -0.5, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_RSQRT.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def sin(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """sin x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SIN.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def tan(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """tan x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_TAN.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def erf(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """erf x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ERF.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def identity(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x, in the result's type, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_IDENTITY.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def reciprocal(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """1 / x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_RECIPROCAL.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def relu(
        self,
        input: Operand,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """min(x, upper) if x >= lower else lower + slope * (x - lower), element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_RELU_FWD.

        Arguments:
            input: a tensor, or a number
            negative_slope: relu's slope below its start; optional
            lower_clip: where relu starts; optional
            upper_clip: where relu ends; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def tanh(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """tanh x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_TANH_FWD.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def sigmoid(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """1 / (1 + e ** -x), element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SIGMOID_FWD.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def elu(
        self,
        input: Operand,
        elu_alpha: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x if x > 0 else alpha * (e ** x - 1), element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ELU_FWD.

        Arguments:
            input: a tensor, or a number
            elu_alpha: elu's alpha; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def gelu(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x / 2 * (1 + erf(x / sqrt 2)), element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_GELU_FWD.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def softplus(
        self,
        input: Operand,
        softplus_beta: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """log(1 + e ** (beta * x)) / beta, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SOFTPLUS_FWD.

        Arguments:
            input: a tensor, or a number
            softplus_beta: softplus's beta; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def swish(
        self,
        input: Operand,
        swish_beta: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x / (1 + e ** (-beta * x)), element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SWISH_FWD.

        Arguments:
            input: a tensor, or a number
            swish_beta: swish's beta; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def gelu_approx_tanh(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3))), element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_GELU_APPROX_TANH_FWD.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def relu_backward(
        self,
        loss: Operand,
        input: Operand,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy where lower < x < upper, slope * dy below, 0 above, element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_RELU_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            negative_slope: relu's slope below its start; optional
            lower_clip: where relu starts; optional
            upper_clip: where relu ends; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def tanh_backward(
        self,
        loss: Operand,
        input: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy * (1 - tanh(x)**2), element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_TANH_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def sigmoid_backward(
        self,
        loss: Operand,
        input: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy * s * (1 - s), s = sigmoid x, element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SIGMOID_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def elu_backward(
        self,
        loss: Operand,
        input: Operand,
        elu_alpha: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy if x > 0 else dy * alpha * e ** x, element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_ELU_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            elu_alpha: elu's alpha; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def gelu_backward(
        self,
        loss: Operand,
        input: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy * (cdf(x) + x * pdf(x)) of the normal distribution, element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_GELU_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def softplus_backward(
        self,
        loss: Operand,
        input: Operand,
        softplus_beta: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy * sigmoid(beta * x), element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SOFTPLUS_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            softplus_beta: softplus's beta; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def swish_backward(
        self,
        loss: Operand,
        input: Operand,
        swish_beta: float | None = None,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy * (s + beta * x * s * (1 - s)), s = sigmoid(beta * x), element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_SWISH_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            swish_beta: swish's beta; optional
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def gelu_approx_tanh_backward(
        self,
        loss: Operand,
        input: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """dy * the slope of gelu_approx_tanh at x, element by element; dims of 1 broadcast.

        loss, input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_GELU_APPROX_TANH_BWD.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def cmp_eq(
        self,
        input: Operand,
        comparison: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x == b, element by element; dims of 1 broadcast.

        input, comparison: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_CMP_EQ.

        Arguments:
            input: a tensor, or a number
            comparison: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def cmp_neq(
        self,
        input: Operand,
        comparison: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x != b, element by element; dims of 1 broadcast.

        input, comparison: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_CMP_NEQ.

        Arguments:
            input: a tensor, or a number
            comparison: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def cmp_gt(
        self,
        input: Operand,
        comparison: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x > b, element by element; dims of 1 broadcast.

        input, comparison: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_CMP_GT.

        Arguments:
            input: a tensor, or a number
            comparison: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def cmp_ge(
        self,
        input: Operand,
        comparison: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x >= b, element by element; dims of 1 broadcast.

        input, comparison: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_CMP_GE.

        Arguments:
            input: a tensor, or a number
            comparison: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def cmp_lt(
        self,
        input: Operand,
        comparison: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x < b, element by element; dims of 1 broadcast.

        input, comparison: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_CMP_LT.

        Arguments:
            input: a tensor, or a number
            comparison: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def cmp_le(
        self,
        input: Operand,
        comparison: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x <= b, element by element; dims of 1 broadcast.

        input, comparison: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_CMP_LE.

        Arguments:
            input: a tensor, or a number
            comparison: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def logical_and(
        self, a: Operand, b: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x and b, element by element; dims of 1 broadcast.

        a, b: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_LOGICAL_AND.

        Arguments:
            a: a tensor, or a number
            b: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def logical_or(
        self, a: Operand, b: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """x or b, element by element; dims of 1 broadcast.

        a, b: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_LOGICAL_OR.

        Arguments:
            a: a tensor, or a number
            b: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def logical_not(
        self, input: Operand, compute_data_type: DataType | None = None, name: str = ""
    ) -> GraphTensor:
        """not x, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_LOGICAL_NOT.

        Arguments:
            input: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def gen_index(
        self,
        input: Operand,
        axis: SupportsIndex,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """the index along an axis, element by element; dims of 1 broadcast.

        input: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_GEN_INDEX.

        Arguments:
            input: a tensor, or a number
            axis: the axis whose indices are given
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def binary_select(
        self,
        input0: Operand,
        input1: Operand,
        mask: Operand,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """x where t is not 0, else b, element by element; dims of 1 broadcast.

        input0, input1, mask: tensors, or numbers; leading dims of 1 are implied.
        Result: their broadcast dims.
        Source: CUDNN_POINTWISE_BINARY_SELECT.

        Arguments:
            input0: a tensor, or a number
            input1: a tensor, or a number
            mask: a tensor, or a number
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def leaky_relu(
        self,
        input: Operand,
        negative_slope: float,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """relu_fwd with a slope below 0.

        Arguments:
            input: a tensor, or a number
            negative_slope: relu's slope below 0
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    def leaky_relu_backward(
        self,
        loss: Operand,
        input: Operand,
        negative_slope: float,
        compute_data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """relu_bwd with a slope below 0.

        Arguments:
            loss: a tensor, or a number
            input: a tensor, or a number
            negative_slope: relu's slope below 0
            compute_data_type: the type of the arithmetic; default: the graph's
            name: a label; results are named after it

        Returns:
            the result
        """
    scaled_dot_product_flash_attention = sdpa
    scaled_dot_product_flash_attention_backward = sdpa_backward
