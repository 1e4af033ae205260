#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
# A launch of Megatron-LM in the usual form: variables, arrays, a condition.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
export NCCL_ALGO=allreduce:tree,ring
CHECKPOINTS=${1:-"checkpoints/llama"}
GPUS_PER_NODE=8
NODES=${SLURM_NNODES:-2}
TP=2
PP=2
DTYPE="fp8"
mkdir -p "$(dirname "$CHECKPOINTS")"

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NODES
    --node_rank ${RANK_OF_NODE}
)
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --normalization RMSNorm
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --swiglu
    --untie-embeddings-and-output-weights
    --disable-bias-linear
    --rotary-base 500000
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size $((TP * 64))
    --lr 0.00015
    --lr-decay-style cosine
    --clip-grad 1.0
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --bf16
    --use-distributed-optimizer
    --overlap-grad-reduce
    --sequence-parallel   # with tensor parallelism
)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-recipe delayed"
    )
fi
if [ ! -f pretrain_gpt.py ]; then
    echo "pretrain_gpt.py is not here"
    exit 1
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} "${TRAINING_ARGS[@]}" ${DTYPE_ARGS[@]} \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size=$PP \
    --tokenizer-type HuggingFaceTokenizer --vocab-size 128256 \
    --save "$CHECKPOINTS"
